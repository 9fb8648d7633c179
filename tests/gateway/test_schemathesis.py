"""Schemathesis drives the real server by our own description: what is described is what is answered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from headwater.gateway.openapi import SCHEMAS, describe
from tests.gateway.running import TOKENS, Running

EXAMPLES = int(os.environ.get("HEADWATER_FUZZ_EXAMPLES", "300")) // 15


def lighter() -> dict[str, Any]:
    """The description with events of one kind and without facets.

    Generating from all standard facets takes minutes and says nothing more about the routes: the validator
    has a corpus of its own.
    """
    description = describe()
    schemas = description["components"]["schemas"]
    known = {name: schemas[name] for name in SCHEMAS}
    named = {
        "type": "object",
        "required": ["namespace", "name"],
        "properties": {"facets": {"maxProperties": 0}},
    }
    known["Event"] = {
        "type": "object",
        "required": ["eventTime", "producer", "schemaURL", "run", "job"],
        "properties": {
            "eventTime": {"type": "string", "format": "date-time"},
            "producer": {"type": "string", "format": "uri"},
            "schemaURL": {"type": "string", "format": "uri"},
            "run": {
                "type": "object",
                "required": ["runId"],
                "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": {"maxProperties": 0}},
            },
            "job": named,
        },
    }
    description["components"]["schemas"] = known
    return description


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


schema = schemathesis.openapi.from_dict(lighter())


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("schemathesis"), tokens=TOKENS) as running:
        yield running


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described_when_requests_follow_the_description(gateway: Running, case: Any) -> None:
    if case.headers:
        case.headers.pop("Content-Encoding", None)  # the body that is generated is not compressed
    secret = "web-server" if "s2s" in case.path or "bulk" in case.path else "web-client"
    response = case.call(base_url=gateway.url, headers={"X-Auth-Token": secret})
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
