"""The fields of a batch, and the JSON types of their values."""

from __future__ import annotations

import json

from headwater.destinations.column_types import Kind
from headwater.destinations.duckdb import DuckDBDestination
from headwater.pipeline.spark.session import SPLIT_BYTES
from headwater.pipeline.steps.batch_schema import batch_columns
from headwater.pipeline.steps.field_tree import BatchFields, Field, Json, JsonTypes
from headwater.pipeline.steps.mapping import MappedField, map_fields
from headwater.pipeline.steps.parse_events import find_fields, malformed_lines
from headwater.settings import MappingSettings
from tests.pipeline.rig import BROWSER_KEY, Rig


def kinds_of(root: Field) -> dict[str, JsonTypes]:
    return {name: child.json_types for name, child in root.children.items()}


def test_every_json_type_is_found_when_lines_are_parsed(rig: Rig) -> None:
    event = {
        "bool": True,
        "int": -5,
        "most": 2**63 - 1,
        "float": 5.0,
        "text": "x",
        "array": [1, {"a": 2}],
        "object": {"in": 1},
        "null": None,
        "empty": {},
        "big": 2**63,
    }
    raw = b'{"exponent": 1e3, "huge": 1e25, "beyond": 1e400, "digits": 0.12345678901234567890123}'
    fields = find_fields(rig.lines(event, raw))
    assert kinds_of(fields.root) == {
        "bool": JsonTypes.BOOL,
        "int": JsonTypes.INT64,
        "most": JsonTypes.INT64 | JsonTypes.LARGE_INT64,
        "float": JsonTypes.FLOAT64,
        "text": JsonTypes.STRING,
        "array": JsonTypes.ARRAY,
        "object": JsonTypes.OBJECT,
        "empty": JsonTypes.OBJECT,
        "big": JsonTypes.TOO_LARGE,
        "exponent": JsonTypes.FLOAT64,
        "huge": JsonTypes.FLOAT64,
        "beyond": JsonTypes.TOO_LARGE,
        "digits": JsonTypes.TOO_LARGE,
    }
    names = batch_columns(map_fields(fields.root, MappingSettings()), DuckDBDestination.capabilities)
    # null and {} give no column
    assert set(names) == {*event, "exponent", "huge", "beyond", "digits", "object_in"} - {
        "object",
        "null",
        "empty",
    }
    assert names["big"].kind is Kind.STRING


TIMES = [
    ("2026-11-16T10:00:00Z", True),
    ("2026-11-16T10:00:00", True),
    ("2026-11-16T10:00:00.123456789Z", True),
    ("2026-11-16T10:00:00+01:00", True),
    ("2026-11-16T10:00:00-0730", True),
    ("2024-02-29T23:59:59.9+00:00", True),
    ("2026-02-29T10:00:00Z", False),
    ("2026-13-01T10:00:00Z", False),
    ("2026-11-16T24:00:00Z", False),
    ("2026-11-16 10:00:00", False),
    ("2026-11-16T10:00:00.Z", False),
    ("2026-11-16T10:00:00+1:00", False),
    ("2026-11-16T10:00:00Zulu", False),
    ("2026-11-16T10:00", False),
    ("2026-11-16", False),
    ("1763287200", False),
    ("0000-01-01T00:00:00Z", False),
]


def test_a_text_is_a_time_only_when_it_names_a_moment(rig: Rig) -> None:
    result = rig.project({f"t{number}": text for number, (text, _) in enumerate(TIMES)})
    for number, (text, is_time) in enumerate(TIMES):
        assert result.kinds[f"t{number}"] == ("TIMESTAMP" if is_time else "STRING"), text
        assert f"t{number}" in result.rows[0], text


def test_a_field_is_found_when_only_the_last_of_many_lines_has_it(rig: Rig) -> None:
    # sampling would miss it; the file has several splits
    lines = [json.dumps({"a": i, "pad": "x" * 2000}).encode() for i in range(2_000)]
    rig.spark.conf.set("spark.sql.files.maxPartitionBytes", 1024 * 1024)
    try:
        fields = find_fields(rig.lines(*lines, {"late": 1.5}))
    finally:
        rig.spark.conf.set("spark.sql.files.maxPartitionBytes", SPLIT_BYTES)
    assert fields.events == 2_001
    assert fields.root.children["late"].json_types == JsonTypes.FLOAT64


def test_a_malformed_line_leaves_no_column_when_it_breaks_in_the_middle(rig: Rig) -> None:
    lines = rig.lines(
        {"a": 1}, b'{"evil": 2, "a": "text"', b'{"b": 1} trailing', b"", b"  ", b"[1]", b'"s"', b"nul"
    )
    fields = find_fields(lines)
    assert (fields.events, fields.malformed, fields.blank) == (1, 5, 2)
    assert {name: node.json_types for name, node in fields.root.children.items() if node.json_types} == {
        "a": JsonTypes.INT64
    }
    assert malformed_lines(lines).count() == 5


def test_browser_events_are_counted_when_they_carry_the_key(rig: Rig) -> None:
    lines = rig.lines({"api_key": BROWSER_KEY}, {"api_key": "web"}, {"x": {"api_key": BROWSER_KEY}})
    assert find_fields(lines, BROWSER_KEY).from_browser == 1
    assert find_fields(lines).from_browser == 0


def test_partitions_are_merged_in_their_order_when_they_differ() -> None:
    counts = (
        '"events":1,"malformed":0,"blank":1,"from_browser":0,"skipped":0',
        '"events":2,"malformed":1,"blank":0,"from_browser":1,"skipped":0',
    )
    trees = (
        '[0,{"a":[2,{},1],"o":[128,{"x":[1,{},1]},1]},0]',
        '[0,{"z":[8,{},1],"a":[4,{},2],"o":[128,{"y":[8,{},1]},1]},0]',
    )
    answers = [
        f'{{"file":0,"table":"",{count},"tree":{tree}}}' for count, tree in zip(counts, trees, strict=True)
    ]
    fields = BatchFields.merged(answers)
    assert (fields.events, fields.malformed, fields.blank, fields.from_browser) == (3, 1, 1, 1)
    assert list(fields.root.children) == ["a", "o", "z"]
    assert [child.count for child in fields.root.children.values()] == [3, 2, 1]
    assert fields.root.children["a"].json_types == JsonTypes.INT64 | JsonTypes.FLOAT64
    assert list(fields.root.children["o"].children) == ["x", "y"]


def test_the_exact_path_has_priority_when_two_paths_give_one_name() -> None:
    paths = (("a", "b"), ("a-b",), ("a_b",), ("A_b",))
    mapped = [MappedField(path, [Field(Json(path), JsonTypes.STRING)]) for path in paths]
    for order in (mapped, mapped[::-1]):
        found = batch_columns(order, DuckDBDestination.capabilities)["a_b"].mapped
        assert [each.path for each in found] == [("a", "b"), ("a_b",), ("A_b",), ("a-b",)]
