"""What changed in the lineage of a dataset between two moments."""

from __future__ import annotations

from pathlib import Path

from headwater.page.urls import link
from tests.graph.events import column_lineage, dataset, flow, schema, source
from tests.page.client import page_client


def test_added_and_removed_edges_are_listed_when_two_moments_differ(tmp_path: Path) -> None:
    def report(minute: int, **columns: str) -> dict[str, object]:
        edges = column_lineage(**{name: [source(table, "c")] for name, table in columns.items()})
        made = dataset("report", schema=schema(**dict.fromkeys(columns, "int")), columnLineage=edges)
        return flow("build", sorted(set(columns.values())), [made], minute=minute)

    events = [report(1, a="old", b="kept"), report(3, b="kept", d="new"), report(5, b="kept", d="new")]
    with page_client(tmp_path, events) as client:

        def changes(before: int, after: int) -> str:
            moments = {"before": f"2026-01-01T00:0{before}", "after": f"2026-01-01T00:0{after}"}
            answer = client.get(link("compare", namespace="db", name="report", **moments))
            assert answer.status_code == 200
            return answer.text

        text = changes(2, 4)
        assert "<b>1</b> added" in text
        assert "<b>1</b> removed" in text
        assert "<b>1</b> unchanged" in text
        rows = text.partition("<tbody>")[2].partition("</tbody>")[0].split("<tr>")[1:]
        assert ["added" in row and "new" in row for row in rows] == [True, False]
        assert ["removed" in row and "old" in row for row in rows] == [False, True]
        assert "the same at both moments" in changes(4, 6)
        assert "<b>2</b> added" in changes(0, 2)
        down = client.get(
            link("compare", namespace="db", name="new", before="2026-01-01T00:02", after="2026-01-01T00:04")
        )
        assert "<b>1</b> added" in down.text
        bad = client.get(link("compare", namespace="db", name="new", before="soon"))
        assert bad.status_code == 400
        assert client.get(link("compare", namespace="db", name="report")).status_code == 200
