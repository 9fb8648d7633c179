"""Schemathesis drives the real server by our own description: what is described is what is answered."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import schemathesis
import zstandard
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from headwater.gateway.gateway import ENDPOINTS
from headwater.gateway.lineage_routes import openlineage_schemas
from headwater.http.routing.openapi import document
from tests.gateway.running import TOKENS, Running

# Examples of each endpoint.
FEW = 3
MANY = 12

KEPT = {
    "DatasetFacets": {"documentation", "version"},
    "InputDatasetFacets": {"inputStatistics"},
    "JobFacets": {"sql"},
    "OutputDatasetFacets": {"outputStatistics"},
    "RunFacets": {"nominalTime"},
}


def lighter() -> dict[str, Any]:
    """The description as it is served, with a few facets of each container instead of all.

    With all of them one example of a batch takes a second and more to make, since each facet may occur in
    each dataset; that is minutes, and says nothing more about the routes: the validator has a corpus of its
    own that goes through every facet. What is left out may still come, as a facet that is not known.
    """
    description = document(ENDPOINTS, openlineage_schemas())
    schemas = description["components"]["schemas"]
    for name, kept in KEPT.items():
        container = schemas[name]
        facets = {facet: found for facet, found in container["properties"].items() if facet in kept}
        assert facets.keys() == kept
        schemas[name] = container | {"properties": facets}
    return description


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


schema = schemathesis.openapi.from_dict(lighter())


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("schemathesis"), tokens=TOKENS) as running:
        yield running


# Generating OpenLineage events takes most of the time; test_fuzz sends them in the short tier.
@schema.exclude(path_regex="/lineage").parametrize()
@settings(max_examples=FEW, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described_when_requests_follow_the_description(gateway: Running, case: Any) -> None:
    check(gateway, case)


@pytest.mark.long
@schema.parametrize()
@settings(max_examples=MANY, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described_when_many_requests_follow_it(gateway: Running, case: Any) -> None:
    check(gateway, case)


def check(gateway: Running, case: Any) -> None:
    secret = "web-server" if "s2s" in case.path or "bulk" in case.path else "web-client"
    parts = case.as_transport_kwargs(base_url=gateway.url, headers={"X-Auth-Token": secret})
    with requests.Session() as session:
        response = session.send(packed(requests.Request(**parts).prepare()), timeout=60)
    assert response.status_code != 500
    case.validate_response(
        response,
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_headers_conformance,
            response_schema_conformance,
            unsupported_method,
        ],
    )


PACK: dict[str | bytes, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "zstd": zstandard.compress,
}


def packed(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """The request with its body as its Content-Encoding says, where that is one we know."""
    pack = PACK.get(request.headers.get("Content-Encoding", ""))
    if pack is not None:
        body = request.body or b""
        assert isinstance(body, str | bytes)
        request.prepare_body(pack(body.encode() if isinstance(body, str) else body), None)
    return request
