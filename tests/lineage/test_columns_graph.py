"""Column lineage of hand-written plans: limits, gaps, names, history and the form of the facets."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.gateway.openlineage_validator import Validator
from headwater.lineage.columns import edge_sets as edge_sets
from headwater.lineage.columns.column_graph import ColumnGraph, DeadlinePassed, NodeColumns
from headwater.lineage.columns.edge_sets import (
    EMPTY,
    TRANSFORMATION,
    Edges,
    Transformation,
    union,
    union_then,
)
from headwater.lineage.columns.outputs import column_lineage_facet, explicit_lineage_facet
from headwater.lineage.columns.written_columns import (
    ColumnLineage,
    ColumnSettings,
    WrittenColumns,
    add_generated_columns,
    column_lineage,
)
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.jvm.plan import Node, Plan
from headwater.lineage.naming.names import DatasetId
from tests.lineage.column_cases import as_text

CATALYST = "org.apache.spark.sql.catalyst.plans.logical"
RELATION = "org.apache.spark.sql.execution.datasources.LogicalRelation"
STRUCT = {"type": "struct", "fields": [{"name": "p", "type": "integer"}, {"name": "q", "type": "string"}]}


def plan(*nodes: dict[str, Any], cut: str | None = None) -> Plan:
    """A plan whose last node is its root; ids are positions, and children default to the node before."""
    made = []
    for place, node in enumerate(nodes):
        cls = node.get("cls", "Project")
        kids = node.get("kids", [place - 1] if place else [])
        full = {**node, "id": place, "cls": cls if "." in cls else f"{CATALYST}.{cls}", "kids": kids}
        made.append(msgspec.convert(full, Node))
    return Plan(nodes=made, root=len(made) - 1, cut=cut)


def table(*columns: str, types: Any = "integer") -> dict[str, Any]:
    return {"cls": RELATION, "out": [[place, name, types] for place, name in enumerate(columns)]}


def project(*aliases: list[Any], out: list[list[Any]] | None = None) -> dict[str, Any]:
    made = out if out is not None else [[one[1], one[2], "integer"] for one in aliases]
    return {"ex": {"projectList": list(aliases)}, "out": made}


def read(node: Node) -> list[DatasetId]:
    return [DatasetId("test", "t")]


def wide(columns: int) -> Plan:
    names = [f"c{place}" for place in range(columns)]
    every = [["a", place] for place in range(columns)]
    return plan(
        table(*names),
        project(*(["=", columns + place, name, ["f", "Concat", every]] for place, name in enumerate(names))),
    )


def test_columns_are_left_out_and_listed_when_there_are_too_many() -> None:
    lineage = column_lineage(wide(20), read, settings=ColumnSettings(max_columns=5))
    assert list(lineage.fields) == ["c0", "c1", "c2", "c3", "c4"]
    assert lineage.cut == ["15 of 20 columns"]


def test_fields_are_left_out_and_listed_when_there_are_too_many_edges() -> None:
    lineage = column_lineage(wide(20), read, settings=ColumnSettings(max_edges=50))
    assert len(lineage.fields) == 2
    assert lineage.cut == ["fields with more edges than the budget of 50 has left"]
    assert column_lineage_facet(lineage, "https://example.com")["cut"] == lineage.cut


def test_the_facet_says_so_when_the_deadline_has_passed() -> None:
    lineage = column_lineage(wide(3), read, deadline=time.monotonic() - 1)
    assert lineage.fields == {}
    assert lineage.cut == ["the deadline passed before the plan was followed to its end"]
    assert lineage
    with pytest.raises(DeadlinePassed):
        ColumnGraph(wide(3), read, deadline=time.monotonic() - 1).run()


def test_the_facet_says_so_when_the_plan_was_cut() -> None:
    whole = wide(3)
    lineage = column_lineage(Plan(nodes=whole.nodes, root=-1, cut="larger than its budget"), read)
    assert lineage.cut == ["larger than its budget"]


def test_a_million_edges_stay_within_the_deadline_when_outputs_share_them() -> None:
    lineage = column_lineage(wide(1000), read, deadline=time.monotonic() + 60)
    assert sum(len(inputs) for inputs in lineage.fields.values()) == 1_000_000
    assert lineage.cut == []


def test_edges_are_marked_unknown_when_a_node_has_no_rule() -> None:
    made = plan(
        table("a", "b"),
        {
            "cls": "com.acme.Mystery",
            "out": [[0, "a", "integer"], [9, "x", "integer"]],
            "in": [[0, 1]],
            "ex": {"by": [["a", 1]]},
        },
    )
    assert as_text(column_lineage(made, read)) == (
        "a <- t.a IDENTITY\n"
        "x <- t.a UNKNOWN (no rule for Mystery); t.b UNKNOWN (no rule for Mystery)\n"
        "* <- t.b UNKNOWN (no rule for Mystery)\n"
        "? Mystery: no rule for com.acme.Mystery"
    )


def test_edges_are_marked_unknown_when_a_rule_meets_a_form_that_it_does_not_know() -> None:
    made = plan(table("a"), {"cls": "CTERelationDef", "out": [[5, "x", "integer"]], "in": [[0]]})
    lineage = column_lineage(made, read)
    assert lineage.fields["x"][0].transformations[0].subtype == "UNKNOWN"
    assert "its rule failed" in lineage.gaps[0].reason


def test_a_column_that_no_node_produces_is_a_gap_when_it_is_used() -> None:
    made = plan(table("a"), project(["=", 5, "x", ["a", 77]]))
    assert (
        as_text(column_lineage(made, read))
        == "x <- nothing\n? column: no node of the plan produces expression id 77"
    )


def test_a_part_that_could_not_be_read_is_a_gap_when_it_is_a_leaf_or_its_columns() -> None:
    leaf = {"cls": RELATION, "no_out": "NoSuchMethodError: output", "no_f": "it is a plan"}
    found = column_lineage(plan(leaf), lambda node: [])
    assert (
        as_text(found)
        == "? LogicalRelation: its columns cannot be read\n? LogicalRelation: no dataset is known for "
    )
    assert found, "an output of unknown columns has the facet, which says so"


def test_generated_columns_have_the_edges_of_their_columns_when_the_table_computes_them() -> None:
    found = column_lineage(plan(table("ts", "b"), project(["=", 5, "ts", ["a", 0]])), read)
    add_generated_columns(
        found, {"day": "CAST(`ts` AS DATE)", "n": "year(TS) + 1", "ts": "now()", "x": "concat('ts', z)"}
    )
    assert as_text(found) == (
        "ts <- t.ts IDENTITY\nday <- t.ts TRANSFORMATION\nn <- t.ts TRANSFORMATION\nx <- nothing\n"
        "? generated column: x is computed by the table"
    )


def test_what_chooses_rows_is_in_each_field_when_it_is_set_so() -> None:
    made = plan(
        table("a", "b"),
        {"cls": "Filter", "ex": {"condition": [["f", "IsNotNull", [["a", 1]]]]}},
        project(["=", 5, "x", ["a", 0]]),
    )
    assert as_text(column_lineage(made, read)) == "x <- t.a IDENTITY\n* <- t.b FILTER"
    spread = column_lineage(made, read, settings=ColumnSettings(dataset_level=False))
    assert as_text(spread) == "x <- t.a IDENTITY; t.b FILTER"


def test_only_whole_columns_have_edges_when_parts_are_not_wanted() -> None:
    made = plan(
        table("s", types=STRUCT),
        project(["=", 5, "x", ["f", "GetStructField", [["a", 0]], "p"]], ["=", 6, "y", ["a", 0]]),
    )
    made.nodes[1].out = [
        *made.nodes[1].out[:1],
        msgspec.convert([6, "y", STRUCT], type(made.nodes[1].out[0])),
    ]
    assert as_text(column_lineage(made, read)).splitlines() == [
        "x <- t.s.p IDENTITY",
        "y <- t.s IDENTITY",
        "y.p <- t.s.p IDENTITY",
        "y.q <- t.s.q IDENTITY",
    ]
    flat = column_lineage(made, read, settings=ColumnSettings(nested=False))
    assert as_text(flat) == "x <- t.s IDENTITY\ny <- t.s IDENTITY"


def test_edges_have_expressions_when_descriptions_are_wanted() -> None:
    total = ["f", "Add", [["a", 0], ["f", "Upper", [["a", 1]]]]]
    made = plan(
        table("a", "b"),
        project(["=", 5, "x", total]),
        project(["=", 6, "y", ["a", 5]], ["=", 7, "z", ["a", 0]]),
    )
    lineage = column_lineage(made, read, settings=ColumnSettings(descriptions=True))
    assert lineage.texts == {"y": "(a + upper(b))"}
    facet = column_lineage_facet(lineage, "https://example.com")
    assert facet["fields"]["y"]["inputFields"][0]["transformations"] == [
        {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": "(a + upper(b))", "masking": False}
    ]
    assert "description" not in facet["fields"]["z"]["inputFields"][0]["transformations"][0]


def test_names_are_those_of_the_target_when_a_command_writes_by_position() -> None:
    made = plan(table("a", "b"), {"cls": "AppendData", "to": [[70, "x"], [71, "y"]]})
    assert as_text(column_lineage(made, read)) == "x <- t.a IDENTITY\ny <- t.b IDENTITY"
    renamed = column_lineage(made, read, WrittenColumns(0, ["p", ""]))
    assert as_text(renamed) == "p <- t.a IDENTITY"


def test_only_columns_of_the_target_have_edges_when_rows_are_replaced() -> None:
    made = plan(
        table("a"),
        project(["=", 5, "__row_operation", ["l", 1]], ["=", 6, "a", ["a", 0]]),
        {"cls": "ReplaceData", "to": [[70, "a"]]},
    )
    assert as_text(column_lineage(made, read)) == "a <- t.a IDENTITY"


def test_both_sides_have_edges_when_delta_merges() -> None:
    source = {"cls": RELATION, "out": [[0, "id", "integer"], [1, "w", "integer"]]}
    target = {"cls": RELATION, "out": [[5, "id", "integer"], [6, "v", "integer"]], "kids": []}

    def action(name: str, value: list[Any]) -> list[Any]:
        return ["f", "DeltaMergeAction", [value], name]

    update = [["f", "IsNotNull", [["a", 1]]], action("id", ["a", 5]), action("v", ["f", "Upper", [["a", 1]]])]
    insert = [action("id", ["a", 0]), action("V", ["a", 1])]
    command = {
        "cls": "org.apache.spark.sql.delta.commands.MergeIntoCommand",
        "kids": [],
        "inner": [0, 1],
        "out": [[90, "num_affected_rows", "long"]],
        "ex": {
            "condition": [["f", "EqualTo", [["a", 0], ["a", 5]]]],
            "matchedClauses": [["f", "DeltaMergeIntoMatchedUpdateClause", update]],
            "notMatchedClauses": [["f", "DeltaMergeIntoNotMatchedInsertClause", insert]],
        },
    }
    made = plan(source, target, command)
    found = column_lineage(made, lambda node: [DatasetId("test", "st"[node.id])], history=QueryHistory())
    assert as_text(found) == (
        "id <- s.id IDENTITY; t.id IDENTITY\n"
        "v <- s.w IDENTITY+TRANSFORMATION; t.v IDENTITY\n"
        "* <- s.id JOIN; s.w CONDITIONAL; t.id JOIN"
    )


def test_the_old_value_stays_possible_when_delta_updates() -> None:
    target = {"cls": RELATION, "out": [[5, "id", "integer"], [6, "v", "integer"]]}
    changed = {"condition": [["f", "IsNotNull", [["a", 5]]]], "updateExpressions": [["a", 5], ["l", 0]]}
    delta = "org.apache.spark.sql.delta.commands"
    update = plan(target, {"cls": f"{delta}.UpdateCommand", "kids": [], "inner": [0], "ex": changed})
    assert as_text(column_lineage(update, read)) == (
        "id <- t.id IDENTITY\nv <- t.id CONDITIONAL; t.v TRANSFORMATION"
    )
    condition = {"condition": changed["condition"]}
    delete = plan(target, {"cls": f"{delta}.DeleteCommand", "kids": [], "inner": [0], "ex": condition})
    assert as_text(column_lineage(delete, read)) == (
        "id <- t.id IDENTITY\nv <- t.v IDENTITY\n* <- t.id FILTER"
    )


def test_column_lineage_methods_replace_the_rule_when_a_node_has_them() -> None:
    made = plan(
        table("a", "b"),
        {"cls": "com.acme.Write", "in": [[0, 1]]},
    )
    described = NodeColumns(
        inputs=((40, "extra", (DatasetId("acme", "side"),)),),
        outputs=((50, "x"), (51, "y")),
        dependencies=((50, (["a", 0], ["a", 40])), (51, (["f", "Upper", [["a", 1]]],))),
    )

    def node_columns(node: Node) -> NodeColumns | None:
        return described if node.simple == "Write" else None

    assert as_text(column_lineage(made, read, node_columns=node_columns)) == (
        "x <- side.extra IDENTITY; t.a IDENTITY\ny <- t.b TRANSFORMATION"
    )


def test_column_lineage_methods_are_a_gap_when_they_raise() -> None:
    def node_columns(node: Node) -> NodeColumns | None:
        raise RuntimeError("broken")

    lineage = column_lineage(plan(table("a")), read, node_columns=node_columns)
    assert lineage.gaps[0].reason == "its column lineage methods failed: RuntimeError: broken"
    assert as_text(lineage).startswith("a <- t.a IDENTITY")


def test_rows_are_followed_to_their_query_when_it_was_seen_before() -> None:
    history = QueryHistory()
    first = plan(
        table("a", "b"),
        {"cls": "Filter", "ex": {"condition": [["f", "IsNotNull", [["a", 1]]]]}},
        project(["=", 5, "x", ["f", "Upper", [["a", 0]]]]),
    )
    ColumnGraph(first, read, history=history).run()
    rdd = {
        "cls": "org.apache.spark.sql.execution.LogicalRDD",
        "out": [[5, "x", "integer"], [6, "n", "integer"]],
    }
    second = plan(rdd, project(["=", 8, "y", ["a", 5]], ["=", 9, "z", ["a", 6]]))
    assert as_text(column_lineage(second, lambda node: [], history=history)) == (
        "y <- t.a TRANSFORMATION\nz <- nothing\n* <- t.b FILTER\n"
        "? LogicalRDD: rows made by the program's own code"
    )
    assert as_text(column_lineage(second, lambda node: [])).startswith("y <- nothing")


def test_the_history_drops_the_oldest_columns_when_it_is_full() -> None:
    history = QueryHistory(limit=10)
    for start in range(0, 60, 3):
        columns = [[start + place, f"c{place}", "integer"] for place in range(3)]
        ColumnGraph(plan({"cls": RELATION, "out": columns}), read, history=history).run()
    known = [number for number in range(60) if history.find_column(number) is not None]
    assert known == [55, 56, 57, 58, 59]


def test_an_input_is_listed_once_when_a_leaf_reads_several_datasets_and_is_read_twice() -> None:
    made = plan(
        {"cls": RELATION, "out": [[0, "a", "integer"]]},
        {"cls": RELATION, "out": [[1, "a", "integer"]], "kids": []},
        {"cls": "Join", "kids": [0, 1], "ex": {"condition": [["f", "EqualTo", [["a", 0], ["a", 1]]]]}},
        project(["=", 5, "x", ["f", "Add", [["a", 0], ["a", 1]]]]),
    )
    lineage = column_lineage(made, lambda node: [DatasetId("test", "p"), DatasetId("test", "q")])
    assert as_text(lineage) == "x <- p.a TRANSFORMATION; q.a TRANSFORMATION\n* <- p.a JOIN; q.a JOIN"


def test_both_facets_are_valid_when_they_are_checked_strictly() -> None:
    made = plan(
        table("a", "j", types="string"),
        {"cls": "Filter", "ex": {"condition": [["f", "IsNotNull", [["a", 0]]]]}},
        {"cls": "com.acme.Mystery", "out": [[0, "a"], [1, "j"]], "in": [[0, 1]]},
        project(
            ["=", 5, "x", ["f", "GetJsonObject", [["a", 1], ["l", "$.user.name"]]]],
            ["=", 6, "y", ["f", "Md5", [["a", 0]]]],
        ),
    )
    lineage = column_lineage(made, read)
    producer = "https://example.com/producer"
    columns = column_lineage_facet(lineage, producer)
    assert columns["fields"]["x"]["inputFields"][0]["jsonPointer"] == "/user/name"
    assert columns["unknown"] == [{"what": "Mystery", "reason": "no rule for com.acme.Mystery"}]
    event = {
        "eventTime": "2026-01-01T00:00:00Z",
        "eventType": "COMPLETE",
        "producer": producer,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": "01890a5d-ac96-774b-bcce-b302099a8057"},
        "job": {"namespace": "n", "name": "j"},
        "outputs": [
            {
                "namespace": "n",
                "name": "o",
                "facets": {"columnLineage": columns, "lineage": explicit_lineage_facet(lineage, producer)},
            }
        ],
    }
    verdict = Validator(strict=True).check(event)
    assert verdict.errors == ()


masks = st.dictionaries(st.integers(0, 10), st.integers(1, 255), max_size=4).map(Edges)


@given(masks, masks, masks)
def test_unions_do_not_depend_on_order_when_sets_are_joined(a: Edges, b: Edges, c: Edges) -> None:
    assert union(a, b, c) == union(c, union(b, a))
    assert union(a, a) == a
    assert union(a, EMPTY) == a


@given(st.lists(masks, max_size=4))
def test_a_step_over_a_union_is_the_same_when_it_is_made_at_once(sets: list[Edges]) -> None:
    assert union_then(sets, TRANSFORMATION) == union(*sets).then(TRANSFORMATION)


def test_numbers_keep_their_meaning_when_threads_add_transformations_at_once() -> None:
    wanted = [Transformation(True, "UNKNOWN", note=f"no rule for C{n}") for n in range(200)]
    start = threading.Barrier(4)

    def add(order: list[Transformation]) -> list[int]:
        start.wait()
        return [edge_sets.number_of(each) for each in order]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            orders = [wanted, wanted[::-1], wanted[::2] + wanted[1::2], wanted[100:] + wanted[:100]]
            found = list(pool.map(add, orders))
    finally:
        sys.setswitchinterval(interval)
    for order, numbers in zip(orders, found, strict=True):
        assert [edge_sets.transformation_of(number) for number in numbers] == order
        assert [edge_sets.number_of(each) for each in order] == numbers


def test_lineage_is_false_when_it_is_empty() -> None:
    assert not ColumnLineage()
    assert ColumnLineage(cut=["x"])
