"""The scan: which fields a batch has, and of which kinds."""

from __future__ import annotations

import json

import pytest

from headwater.destinations.column_types import Kind
from headwater.pipeline.steps.batch_schema import Leaf, Node, Scanned, Seen, columns_of
from headwater.pipeline.steps.mapping import apply
from headwater.pipeline.steps.read_lines import bad_lines, scan_lines
from headwater.settings import MappingSettings
from tests.pipeline.rig import BROWSER_KEY, Rig


def kinds_of(root: Node) -> dict[str, Seen]:
    return {name: child.seen for name, child in root.children.items()}


def test_every_kind_is_noted_when_lines_are_scanned(rig: Rig) -> None:
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
    scanned = scan_lines(rig.lines(event, raw))
    assert kinds_of(scanned.root) == {
        "bool": Seen.BOOL,
        "int": Seen.INT64,
        "most": Seen.INT64,
        "float": Seen.FLOAT64,
        "text": Seen.STRING,
        "array": Seen.ARRAY,
        "object": Seen.OBJECT,
        "empty": Seen.OBJECT,
        "big": Seen.BIG,
        "exponent": Seen.FLOAT64,
        "huge": Seen.FLOAT64 | Seen.HUGE,
        "beyond": Seen.BIG,
        "digits": Seen.FLOAT64,
    }
    names = columns_of(apply(scanned.root, MappingSettings()), 63)
    # null and {} give no column
    assert set(names) == {*event, "exponent", "huge", "beyond", "digits", "object_in"} - {
        "object",
        "null",
        "empty",
    }
    assert names["big"].kind is Kind.STRING


@pytest.mark.parametrize(
    ("text", "is_time"),
    [
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
    ],
)
def test_a_text_is_a_time_only_when_it_names_a_moment(rig: Rig, text: str, is_time: bool) -> None:
    result = rig.project({"t": text})
    assert result.kinds == {"t": "TIMESTAMP" if is_time else "STRING"}
    assert "t" in result.rows[0]


def test_a_field_is_seen_when_only_the_last_of_many_lines_has_it(rig: Rig) -> None:
    # sampling would miss it; the file has several splits
    lines = [json.dumps({"a": i, "pad": "x" * 2000}).encode() for i in range(40_000)]
    scanned = scan_lines(rig.lines(*lines, {"late": 1.5}))
    assert scanned.events == 40_001
    assert scanned.root.children["late"].seen == Seen.FLOAT64


def test_a_malformed_line_leaves_no_column_when_it_breaks_in_the_middle(rig: Rig) -> None:
    lines = rig.lines(
        {"a": 1}, b'{"evil": 2, "a": "text"', b'{"b": 1} trailing', b"", b"  ", b"[1]", b'"s"', b"nul"
    )
    scanned = scan_lines(lines)
    assert (scanned.events, scanned.bad, scanned.blank) == (1, 5, 2)
    assert {name: node.seen for name, node in scanned.root.children.items() if node.seen} == {"a": Seen.INT64}
    assert bad_lines(lines).count() == 5


def test_browser_events_are_counted_when_they_carry_the_key(rig: Rig) -> None:
    lines = rig.lines({"api_key": BROWSER_KEY}, {"api_key": "web"}, {"x": {"api_key": BROWSER_KEY}})
    assert scan_lines(lines, BROWSER_KEY).browser == 1
    assert scan_lines(lines).browser == 0


def test_partitions_are_merged_in_their_order_when_they_differ() -> None:
    counts = (
        '"events":1,"bad":0,"blank":1,"browser":0,"skipped":0',
        '"events":2,"bad":1,"blank":0,"browser":1,"skipped":0',
    )
    trees = (
        '[0,{"a":[2,{}],"o":[128,{"x":[1,{}]}]}]',
        '[0,{"z":[8,{}],"a":[4,{}],"o":[128,{"y":[8,{}]}]}]',
    )
    answers = [
        f'{{"file":0,"table":"",{count},"tree":{tree}}}' for count, tree in zip(counts, trees, strict=True)
    ]
    scanned = Scanned.of(answers)
    assert (scanned.events, scanned.bad, scanned.blank, scanned.browser) == (3, 1, 1, 1)
    assert list(scanned.root.children) == ["a", "o", "z"]
    assert scanned.root.children["a"].seen == Seen.INT64 | Seen.FLOAT64
    assert list(scanned.root.children["o"].children) == ["x", "y"]


def test_the_exact_path_has_the_first_right_when_two_paths_give_one_name() -> None:
    leaves = [Leaf(path, []) for path in (("a", "b"), ("a-b",), ("a_b",), ("A_b",))]
    for each in leaves:
        each.nodes.append(Node(origin=None, seen=Seen.STRING))  # type: ignore[arg-type]
    for order in (leaves, leaves[::-1]):
        found = columns_of(order, 63)["a_b"].leaves
        assert [each.path for each in found] == [("a", "b"), ("a_b",), ("A_b",), ("a-b",)]
