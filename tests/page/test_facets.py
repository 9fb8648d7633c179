"""Facets as people read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.page.urls import link
from headwater.page.views.facets import described
from headwater.page.views.sql import formatted
from tests.graph.events import dataset, facet, flow, run_event, run_id
from tests.page.client import page_client

QUERY = (
    "select o.id, sum(o.price) as total from orders o left join days d on d.id = o.day where d.year > 2024"
)
TRACE = """java.lang.RuntimeException: no space
\tat com.example.Report.write(Report.java:12)
\tat org.apache.spark.sql.Dataset.write(Dataset.scala:1)
\tat org.apache.spark.sql.Dataset.save(Dataset.scala:2)
\tat java.base/java.lang.Thread.run(Thread.java:840)
\tat java.lang.Thread.run(Thread.java:840)
Caused by: java.io.IOException: No space left on device"""
FAILED = facet(
    assertions=[
        {"assertion": "not_null", "success": True, "column": "id"},
        {"assertion": "unique", "success": False, "column": "price", "severity": "error"},
    ]
)


def raw(**facets: Any) -> dict[str, msgspec.Raw]:
    return {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in facets.items()}


def test_sql_has_a_line_for_each_clause_when_it_came_on_one() -> None:
    tokens = formatted(QUERY)
    lines = "".join(token.text for token in tokens).splitlines()
    assert [line.split()[0] for line in lines] == ["select", "sum(o.price)", "from", "left", "where"]
    assert ("keyword", "select") in tokens
    assert ("number", "2024") in tokens
    assert "".join(token.text for token in formatted("select 'a\nb' -- c")) == "select 'a\nb' -- c"


@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(["select ", "(", ")", "'", '"', "/*", "*/", "--", ",", "left join ", "x", "\n"])
    ).map("".join)
)
@settings(max_examples=60, deadline=None)
def test_nothing_of_a_query_is_lost_when_it_is_formatted(query: str) -> None:
    found = "".join(token.text for token in formatted(query))
    assert "".join(found.split()) == "".join(query.split())


def test_facets_are_sorted_into_their_places_when_they_have_the_standard_form() -> None:
    found = described(
        raw(
            documentation={"description": "Orders of the shop."},
            ownership={"owners": [{"name": "team:sales", "type": "MAINTAINER"}]},
            tags={"tags": [{"key": "pii", "value": "true"}, {"key": "tier", "value": "1", "field": "id"}]},
            dataQualityAssertions=FAILED,
            dataQualityMetrics={"rowCount": 1200, "columnMetrics": {"price": {"nullCount": 3, "min": 0.5}}},
            errorMessage={"message": "no space", "programmingLanguage": "JAVA", "stackTrace": TRACE},
            sourceCodeLocation={"url": "javascript:alert(1)"},
            dataSource={"name": "shop", "uri": "postgres://erp"},
        )
    )
    assert found.description == "Orders of the shop."
    assert found.owners == [("team:sales", "MAINTAINER")]
    assert found.tags == ["pii", "tier: 1 (id)"]
    assert [(check.name, check.succeeded) for check in found.checks] == [
        ("unique", False),
        ("not_null", True),
    ]
    assert found.metrics == [("row count", "1,200")]
    assert found.column_metrics[0].values == [("null count", "3"), ("min", "0.5")]
    assert found.location == ""
    assert [(group.key, group.values) for group in found.others] == [
        ("data source", [("name", "shop"), ("uri", "postgres://erp")])
    ]
    assert found.error is not None
    assert [(part.length, part.is_folded) for part in found.error.trace] == [
        (2, False),
        (4, True),
        (1, False),
    ]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["assertions", "owners", "tags", "name", "query", "success", "columnMetrics", "x"]
            ),
            each,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [
        "documentation",
        "ownership",
        "tags",
        "dataQualityAssertions",
        "dataQualityMetrics",
        "sql",
        "sourceCode",
        "errorMessage",
        "other",
    ]
)


@given(st.dictionaries(KEYS, JSON, max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_json_is_a_facet_when_nothing_vouches_for_it(facets: dict[str, Any]) -> None:
    assert set(described(raw(**facets)).raw) == set(facets)


def test_failed_checks_are_red_at_the_top_and_in_the_graph_when_a_dataset_has_some(tmp_path: Path) -> None:
    checked = dataset("orders", extra={"inputFacets": {"dataQualityAssertions": FAILED}})
    with page_client(tmp_path, [flow("check", [checked], ["report"], minute=1)]) as client:
        text = client.get(link("dataset", namespace="db", name="orders")).text
        assert "1 check failed" in text.partition('<dl class="facts">')[0]
        assert text.index("unique") < text.index("not_null")
        assert "1 check failed" in client.get(link("lineage", namespace="db", name="orders")).text


def test_runs_are_a_tree_with_bars_when_a_run_has_children(tmp_path: Path) -> None:
    def child(run: int, parent: int, job: str, minute: int, kind: str = "COMPLETE") -> dict[str, Any]:
        of = facet(run={"runId": run_id(parent)}, job={"namespace": "jobs", "name": f"p{parent}"})
        return run_event(kind, run=run, job=job, minute=minute, run_facets={"parent": of})

    error = {"errorMessage": facet(message="no space", programmingLanguage="JAVA", stackTrace=TRACE)}
    events = [
        run_event("START", run=1, job="dag", minute=0),
        child(2, 1, "task one", 1, "START"),
        child(2, 1, "task one", 3),
        child(3, 2, "query", 2),
        child(4, 1, "task two", 4, "START"),
        run_event(
            "FAIL", run=1, job="dag", minute=9, run_facets=error, job_facets={"sql": facet(query=QUERY)}
        ),
    ]
    with page_client(tmp_path, events) as client:
        for number in (1, 3):
            text = client.get(link("run", id=run_id(number))).text
            part = text.partition('id="timeline"')[2].partition("</section>")[0]
            assert [name for name in ("dag", "task one", "query", "task two") if name not in part] == []
            assert part.count("<tr") == 5
            assert 'class="depth-2"' in part
            assert part.count('aria-current="true"') == 1
        failed = client.get(link("run", id=run_id(1))).text
        assert "Stack trace, 7 lines" in failed
        assert 'class="frames"' in failed
        job = client.get(link("job", namespace="jobs", name="dag")).text
        assert '<span class="keyword">select</span>' in job
        assert "All facets as JSON" in job


def test_all_runs_of_a_tree_are_shown_when_parents_are_a_cycle(tmp_path: Path) -> None:
    def child(run: int, parent: int, minute: int) -> dict[str, Any]:
        of = facet(run={"runId": run_id(parent)}, job={"namespace": "jobs", "name": f"job {parent}"})
        return run_event(run=run, job=f"job {run}", minute=minute, run_facets={"parent": of})

    with page_client(tmp_path, [child(1, 2, 1), child(2, 3, 2), child(3, 1, 3), child(4, 4, 4)]) as client:
        text = client.get(link("run", id=run_id(2))).text
        assert text.partition('id="timeline"')[2].partition("</section>")[0].count("<tr") == 4
        assert client.get(link("run", id=run_id(4))).status_code == 200
