"""Event text is hostile: every view shows it as text (G12)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import pytest

from tests.graph.events import facet
from tests.page.client import ORIGIN, PageClient, page_client
from tests.page.shop import ORDERS, story

EVIL = "\"'><script>window.hurt=1</script><img src=x onerror=window.hurt=1>{{7*7}}${1}\u202e"
NAMESPACE, NAME = f"ns:{EVIL}", f"../../etc/{EVIL}"
SQL = "x'; DROP TABLE names; --"
RUN = str(uuid.UUID(int=666))


def evil_events() -> list[dict[str, Any]]:
    """Events with such text in each field that the page shows."""
    made = {"type": "DIRECT", "subtype": EVIL, "masking": True, "description": EVIL}
    origin = {"namespace": NAMESPACE, "name": f"{NAME} source", "field": EVIL, "transformations": [made]}
    fields = [{"name": EVIL, "type": EVIL, "description": EVIL}, {"name": "fine", "type": "int"}]
    output = {
        "namespace": NAMESPACE,
        "name": NAME,
        "facets": {
            "schema": facet(fields=fields),
            "columnLineage": facet(fields={EVIL: {"inputFields": [origin]}}),
            "documentation": facet(description=EVIL),
            "symlinks": facet(
                identifiers=[{"namespace": NAMESPACE, "name": f"alias {EVIL}", "type": "TABLE"}]
            ),
            "evil_facet": facet(**{EVIL: EVIL}),
        },
        "outputFacets": {"outputStatistics": facet(rowCount=1, size=2)},
    }
    event = {
        "eventType": "FAIL",
        "eventTime": datetime.now(UTC).isoformat(),
        "producer": "https://example.com/producer",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {
            "runId": RUN,
            "facets": {
                "errorMessage": facet(message=EVIL, programmingLanguage=EVIL, stackTrace=EVIL),
                "parent": facet(run={"runId": RUN}, job={"namespace": NAMESPACE, "name": f"parent {EVIL}"}),
                "evil_facet": facet(text=EVIL),
            },
        },
        "job": {"namespace": NAMESPACE, "name": f"job {EVIL}", "facets": {"sql": facet(query=EVIL)}},
        "inputs": [{"namespace": NAMESPACE, "name": f"{NAME} source", "facets": {}}],
        "outputs": [output],
    }
    longer = event | {"outputs": [output | {"facets": {"schema": facet(fields=fields[:1])}}]}
    return [event, longer | {"eventTime": "2020-01-01T00:00:00Z", "run": {"runId": str(uuid.UUID(int=667))}}]


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageClient]:
    with page_client(tmp_path_factory.mktemp("evil"), [*story(), *evil_events()]) as client:
        client.reject_lineage(json.dumps({"job": {"namespace": EVIL, "name": EVIL}}).encode(), EVIL)
        client.reject_order(EVIL, note=EVIL)
        yield client


class Markup(HTMLParser):
    """The elements and attributes that a browser would parse."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.bad: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = [name for name, _ in attrs]
        if tag in ("img", "iframe", "object", "base") or any(name.startswith("on") for name in names):
            self.bad.append(tag)
        if "style" in names or (tag == "script" and not dict(attrs).get("src", "").startswith("/static/")):  # type: ignore[union-attr]
            self.bad.append(f"{tag} {names}")
        for name, value in attrs:
            if name in ("href", "action", "src", "formaction") and not (value or "").startswith(("/", "#")):
                self.bad.append(f"{name}={value}")


def asked(text: str) -> list[str]:
    """Every route with the text in every parameter."""
    it = quote(text, safe="")
    named = f"namespace={quote(NAMESPACE, safe='')}&name={quote(NAME, safe='')}"
    known = f"namespace={quote(ORDERS[0], safe='')}&name={quote(ORDERS[1], safe='')}"
    return [
        f"/?x={it}",
        f"/search?q={it}",
        f"/runs?x={it}",
        f"/rejects?stage={it}",
        f"/rejects?done={it}&count={it}",
        f"/reject?id={it}",
        f"/run?id={it}",
        f"/run?id={RUN}",
        f"/job?namespace={it}&name={it}",
        f"/dataset?namespace={it}&name={it}",
        f"/dataset?{named}",
        f"/lineage?namespace={it}&name={it}",
        f"/lineage?{named}",
        f"/lineage?{named}&column={quote(EVIL, safe='')}",
        f"/lineage?{known}&column={it}",
        f"/lineage?{known}&depth={it}",
        f"/lineage?{known}&direction={it}",
        f"/lineage?{known}&kind={it}",
        f"/lineage?{known}&column=amount&of_name={it}&of_namespace={it}",
        f"/login?next={it}",
        "/rejects",
        "/runs",
        "/",
    ]


@pytest.mark.parametrize(
    "text", [EVIL, SQL, "../../../../etc/passwd", "\x00\x1b[31m", "%2e%2e%2f", "é" * 3000]
)
def test_text_stays_text_when_it_is_in_the_graph_or_in_the_address(evil: PageClient, text: str) -> None:
    for path in asked(text):
        answer = evil.get(path)
        assert answer.status_code in (200, 303, 400, 404), (path, answer.text)
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert Markup(answer.text).bad == [], path
            assert "root:x:0" not in answer.text
        assert "49${1}" not in answer.text  # no part of it is a template
    assert "main.orders" in evil.get("/search?q=orders").text  # and no part of it was a statement


def test_the_export_is_valid_svg_when_names_are_hostile(evil: PageClient) -> None:
    parameters = urlencode({"namespace": NAMESPACE, "name": NAME, "column": EVIL})
    answer = evil.get(f"/lineage.svg?{parameters}")
    assert answer.headers["content-disposition"].startswith('attachment; filename="lineage-')
    assert ".." not in answer.headers["content-disposition"].replace(".svg", "")
    tree = ElementTree.fromstring(answer.content)
    tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert not tags & {"script", "foreignObject", "image", "use"}


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/cli/main.py",
        "/static//etc/passwd",
        "/static/base.html",
        "/static/",
    ],
)
def test_only_the_files_of_the_page_are_served_when_a_path_climbs(evil: PageClient, path: str) -> None:
    assert evil.get(path).status_code == 404


@pytest.mark.parametrize("stage", ["destination:../../x", "destination:", "destination:other", SQL, EVIL])
def test_nothing_is_changed_when_a_stage_is_not_one(evil: PageClient, stage: str) -> None:
    file = evil.events_dir / "failed" / "failed.dst=warehouse.log"
    before = file.read_bytes()
    for action in ("replay", "drop"):
        answer = evil.post(f"/rejects/{action}", {"stage": stage}, origin=ORIGIN)
        assert answer.status_code in (303, 503)
        assert Markup(answer.text).bad == []
    assert file.read_bytes() == before


def test_a_form_is_refused_when_it_is_oversized(evil: PageClient) -> None:
    assert evil.post("/rejects/drop", {"id": "1" * 100_000}, origin=ORIGIN).status_code == 413
