"""Event text is hostile: whatever is in it is shown as text, everywhere (G12)."""

from __future__ import annotations

import socket
import uuid
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import httpx2
import pytest
from playwright.sync_api import expect

from tests.graph.events import facet
from tests.page.conftest import Look
from tests.page.served import Shop
from tests.page.story import ORDERS

EVIL = "\"'><script>window.hurt=1</script><img src=x onerror=window.hurt=1>{{7*7}}${1}\u202e"
NAMESPACE, NAME = f"ns:{EVIL}", f"../../etc/{EVIL}"
SQL = "x'; DROP TABLE names; --"
RUN = str(uuid.UUID(int=666))


def evil_events() -> list[dict[str, Any]]:
    """One event with such text in each field that the page shows."""
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
def evil(shop: Shop) -> Shop:
    shop.lineage(evil_events())
    shop.bad_lineage(job={"namespace": EVIL, "name": EVIL})
    shop.refuse(1, reason=EVIL, note=EVIL)
    shop.orders(1, event_type=EVIL, **{EVIL: EVIL})
    return shop


class Markup(HTMLParser):
    """What a browser would make elements and attributes of."""

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
def test_text_stays_text_when_it_is_in_the_graph_or_in_the_address(evil: Shop, text: str) -> None:
    with httpx2.Client(base_url=evil.url, timeout=60) as client:
        for path in asked(text):
            answer = client.get(path)
            assert answer.status_code in (200, 303, 400, 404), (path, answer.text)
            if answer.headers.get("content-type", "").startswith("text/html"):
                assert Markup(answer.text).bad == [], path
                assert "root:x:0" not in answer.text
            assert "49${1}" not in answer.text  # nothing of it is a template
        assert client.get("/api/v1/graph/summary").json()["datasets"] > 5  # and nothing was a statement


def test_nothing_runs_in_a_browser_when_every_shown_field_is_a_script(look: Look, evil: Shop) -> None:
    named = {"namespace": NAMESPACE, "name": NAME}
    pages: list[tuple[str, dict[str, str]]] = [
        ("/", {}),
        ("/runs", {}),
        ("/run", {"id": RUN}),
        ("/job", {"namespace": NAMESPACE, "name": f"job {EVIL}"}),
        ("/dataset", named),
        ("/lineage", named | {"column": EVIL}),
        ("/rejects", {}),
        ("/reject", {"id": "warehouse:1"}),
        ("/search", {"q": "script"}),
        ("/tail", {}),
    ]
    for path, parameters in pages:
        page = look.go(path, **parameters)
        expect(page.locator("h1").first).to_be_visible()
        for summary in page.locator("main details:not(.confirm) > summary").all()[:5]:
            summary.click()
        if path == "/tail":
            expect(page.locator("#tail li", has_text="window.hurt").first).to_be_visible()
        if path == "/lineage":
            page.locator("a.row.lit").first.click()
            expect(page.locator("#panel.open")).to_be_visible()
        assert page.evaluate("window.hurt") is None, path
    page.keyboard.press("/")
    page.keyboard.type("script")
    expect(page.locator("#found [role=option]").first).to_be_visible()
    assert page.evaluate("window.hurt") is None


def test_the_export_is_wholesome_when_names_are_hostile(evil: Shop) -> None:
    parameters = {"namespace": NAMESPACE, "name": NAME, "column": EVIL}
    answer = httpx2.get(evil.address("/lineage.svg", **parameters), timeout=60)
    assert answer.headers["content-disposition"].startswith('attachment; filename="lineage-')
    assert ".." not in answer.headers["content-disposition"].replace(".svg", "")
    tree = ElementTree.fromstring(answer.content)
    tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert not tags & {"script", "foreignObject", "image", "use"}


@pytest.mark.parametrize(
    "path",
    [
        "/static/../routes.py",
        "/static/..%2froutes.py",
        "/static/%2e%2e/%2e%2e/cli/main.py",
        "/static//etc/passwd",
        "/static/page.html",
        "/static/",
    ],
)
def test_only_the_files_of_the_page_are_served_when_a_path_climbs(shop: Shop, path: str) -> None:
    host, port = shop.host.split(":")
    with socket.create_connection((host, int(port)), 60) as connection:  # clients tidy such paths up
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {shop.host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("stage", ["destination:../../x", "destination:", "destination:nobody", SQL, EVIL])
def test_nothing_is_changed_when_a_stage_is_not_one(shop: Shop, stage: str, tmp_path: Path) -> None:
    shop.refuse(1)
    before = (shop.events_dir / "failed" / "failed.dst=warehouse.log").read_bytes()
    for action in ("replay", "drop"):
        answer = httpx2.post(
            f"{shop.url}/rejects/{action}", data={"stage": stage}, headers={"Origin": shop.url}, timeout=60
        )
        assert answer.status_code in (303, 503)
        assert Markup(answer.text).bad == []
    assert (shop.events_dir / "failed" / "failed.dst=warehouse.log").read_bytes() == before


def test_a_form_is_refused_when_it_is_oversized(shop: Shop) -> None:
    content = "id=" + "1" * 100_000
    answer = httpx2.post(
        f"{shop.url}/rejects/drop", content=content, headers={"Origin": shop.url}, timeout=60
    )
    assert answer.status_code == 413
