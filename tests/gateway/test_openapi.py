"""The description: complete, true to the documentation, and served."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import orjson

from headwater.gateway.gateway import ENDPOINTS
from headwater.gateway.lineage_routes import openlineage_schemas
from headwater.http.routing.endpoint import ANY_ENDPOINT
from headwater.http.routing.openapi import document
from tests.gateway.running import TOKENS, Running, run_event

DESCRIPTION = orjson.loads(orjson.dumps(document(ENDPOINTS, openlineage_schemas())))
DOCUMENT = Path(__file__).parents[2] / "docs" / "http.md"


def statuses_in(heading: str) -> set[int]:
    """The statuses in the table of a section of docs/http.md."""
    section = DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {int(status) for status in re.findall(r"^\| (\d{3}) ", section, re.MULTILINE)}


def test_every_status_is_documented_when_an_endpoint_declares_it() -> None:
    """scripts/docs.py generates the table of endpoints; this is about the meanings below it."""
    assert statuses_in("Endpoints and statuses") == {
        status for endpoint in ENDPOINTS for status in endpoint.statuses
    }
    assert statuses_in("On any route") == set(ANY_ENDPOINT)


def test_every_route_is_described_when_it_is_served(tmp_path: Path) -> None:
    with Running(tmp_path, tokens=TOKENS) as gateway:
        assert gateway.get("/openapi.json").json() == DESCRIPTION
        served = {
            (path, method.lower())
            for path, methods in gateway.gateway.router._paths.items()
            for method in methods
        }
    assert served == {(path, method) for path, methods in DESCRIPTION["paths"].items() for method in methods}


def test_no_event_route_is_described_when_there_are_no_tokens(tmp_path: Path) -> None:
    with Running(tmp_path) as gateway:
        paths = gateway.get("/openapi.json").json()["paths"]
        assert gateway.post(b"{}", "/api/v1/event").status_code == 404
    assert "/api/v1/lineage" in paths
    assert "/api/v1/event" not in paths


def test_event_schema_can_be_used_when_taken_from_the_description() -> None:
    schema = DESCRIPTION | {"$ref": "#/components/schemas/Event"}
    checker = jsonschema.Draft202012Validator(schema)
    assert checker.is_valid(run_event())
    assert not checker.is_valid({})
