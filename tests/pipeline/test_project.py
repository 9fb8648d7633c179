"""The projection: values are really converted, and what does not fit its column is kept."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from typing import Any

import pytest

from headwater.destinations.column_types import Kind, promote
from headwater.destinations.table import Column, table_of
from headwater.settings import FieldSettings, MappingSettings
from tests.pipeline.rig import Rig

pytestmark = pytest.mark.usefixtures("codegen")

MOMENT = "2026-11-16T10:00:00Z"
SAMPLES: dict[Kind, Any] = {
    Kind.BOOL: True,
    Kind.INT64: 7,
    Kind.FLOAT64: 2.5,
    Kind.STRING: "many",
    Kind.TIMESTAMP: MOMENT,
}
CONVERTED: dict[Kind, dict[Kind, Any]] = {
    Kind.BOOL: {Kind.BOOL: True, Kind.INT64: 1, Kind.FLOAT64: 1.0, Kind.STRING: "true"},
    Kind.INT64: {Kind.INT64: 7, Kind.FLOAT64: 7.0, Kind.STRING: "7"},
    Kind.FLOAT64: {Kind.FLOAT64: 2.5, Kind.STRING: "2.5"},
    Kind.STRING: {Kind.STRING: "many"},
    Kind.TIMESTAMP: {Kind.TIMESTAMP: datetime(2026, 11, 16, 10), Kind.STRING: MOMENT},  # noqa: DTZ001
}
PAIRS = list(itertools.product(SAMPLES, SAMPLES))


def unmapped(row: dict[str, Any]) -> Any:
    return json.loads(row.get("_unmapped_data", "{}"))


def test_values_become_the_common_ancestor_when_two_kinds_meet_in_a_batch(rig: Rig) -> None:
    # all pairs of the typecast tree, both values converted
    first = {f"{a}_{b}".lower(): SAMPLES[a] for a, b in PAIRS}
    second = {f"{a}_{b}".lower(): SAMPLES[b] for a, b in PAIRS}
    result = rig.project(first, second)
    assert result.kinds == {f"{a}_{b}".lower(): str(promote(a, b)) for a, b in PAIRS}
    for a, b in PAIRS:
        name, kind = f"{a}_{b}".lower(), promote(a, b)
        assert result.rows[0][name] == CONVERTED[a][kind], f"{a} with {b}"
        assert result.rows[1][name] == CONVERTED[b][kind], f"{b} with {a}"
    assert not result.fit.needs_unmapped


# what an existing column makes of a value; None: it does not fit
EXISTING: dict[Kind, list[tuple[Any, Any]]] = {
    Kind.BOOL: [(True, True), (0, None), (1, None), (2, None), ("true", True), ("yes", None), (1.5, None)],
    Kind.INT64: [
        (True, 1),
        (5.0, 5),
        (5.5, None),
        ("7", 7),
        ("7 days", None),
        ("-12", -12),
        (2**70, None),
        ([1], None),
        ("", None),
        ("0x1f", None),
    ],
    Kind.FLOAT64: [
        (True, 1.0),
        (3, 3.0),
        ("2.5", 2.5),
        ("1e3", None),
        ("NaN", None),
        ("1d", None),
        ("x", None),
    ],
    Kind.TIMESTAMP: [
        (MOMENT, datetime(2026, 11, 16, 10)),  # noqa: DTZ001
        ("2026-11-16 10:00:00", datetime(2026, 11, 16, 10)),  # noqa: DTZ001
        ("2026-11-16", datetime(2026, 11, 16)),  # noqa: DTZ001
        ("2026", None),
        ("10:30", None),
        (1763287200, None),
        ("soon", None),
    ],
    Kind.STRING: [(True, "true"), (1, "1"), (1.5, "1.5"), ([1, "a"], '[1,"a"]'), (2**70, str(2**70))],
    Kind.JSON: [(True, "true"), ("x", '"x"'), (1, "1"), ([1], "[1]")],
}


def test_a_value_is_cast_or_kept_aside_when_the_column_exists_with_another_kind(rig: Rig) -> None:
    cases = [(kind, value, wanted) for kind, values in EXISTING.items() for value, wanted in values]
    fields = {f"c{number}": case for number, case in enumerate(cases)}
    table = table_of("t", [Column(name, case[0]) for name, case in fields.items()])
    # the second event has another kind everywhere, so that columns are mixed
    result = rig.project({name: case[1] for name, case in fields.items()}, existing=table)
    row = result.rows[0]
    assert {name: row.get(name) for name in fields} == {name: case[2] for name, case in fields.items()}
    assert unmapped(row) == {name: case[1] for name, case in fields.items() if case[2] is None}


def test_a_string_stays_a_string_aside_when_its_field_has_numbers_too(rig: Rig) -> None:
    table = table_of("t", [Column("q", Kind.TIMESTAMP)])
    result = rig.project({"q": "7"}, {"q": 7}, {"q": True}, {"q": 'say "x"\n'}, {"q": None}, existing=table)
    assert [unmapped(row).get("q") for row in result.rows] == ["7", 7, True, 'say "x"\n', None]
    assert "_unmapped_data" not in result.rows[4]


def test_both_get_a_column_when_a_field_is_an_object_here_and_a_value_there(rig: Rig) -> None:
    result = rig.project({"a": 5}, {"a": {"b": 1, "c": {"d": "x"}}}, {"a": "{text}"}, {"a": [1]}, {"a": None})
    assert result.kinds == {"a": "STRING", "a_b": "INT64", "a_c_d": "STRING"}
    assert result.rows == [{"a": "5"}, {"a_b": 1, "a_c_d": "x"}, {"a": "{text}"}, {"a": "[1]"}, {}]


def test_arrays_are_json_text_when_they_are_stored(rig: Rig) -> None:
    raw = b'{"a": [1, {"x": [2.5, "\xc3\xa9"]}], "b": []}'
    assert rig.project(raw).rows == [{"a": '[1,{"x":[2.5,"é"]}]', "b": "[]"}]


def test_all_digits_are_kept_when_a_number_has_more_than_64_bits(rig: Rig) -> None:
    digits = "123456789012345678901234567890"
    result = rig.project(f'{{"n": {digits}}}'.encode(), {"n": 5})
    assert result.rows == [{"n": digits}, {"n": "5"}]


def test_keys_that_differ_in_case_are_distinct_when_they_share_a_column(rig: Rig) -> None:
    result = rig.project({"userId": 1}, {"userid": "u"}, {"userId": 3, "userid": 4, "USERID": 5})
    assert [row.get("userid") for row in result.rows] == ["1", "u", "4"]
    # nothing vanishes: of several in one event the others are kept aside
    assert unmapped(result.rows[2]) == {"/userId": 3, "/USERID": 5}


def test_hostile_names_and_values_come_through_when_they_are_projected(rig: Rig) -> None:
    names = [
        "`",
        "a`b",
        "'; --",
        "\\",
        "\n",
        "\u202e",
        "a.b",
        "$[0]",
        "k" * 10_000,
        "{",
        '"',
        "%s",
        "${x}",
        " ",
    ]
    [row] = rig.project({name: name for name in names}).rows
    # `{` and `%s` share a column with others: of those all but one are kept aside
    aside = json.loads(row.pop("_unmapped_data"))
    assert sorted([*row.values(), *aside.values()]) == sorted(names)


def test_deep_objects_stay_text_when_they_are_too_deep(rig: Rig) -> None:
    value: Any = {"end": 1}
    for _ in range(60):
        value = {"n": value}
    result = rig.project(value)
    [(name, text)] = result.rows[0].items()
    assert name == "_".join(["n"] * 32)
    assert text.count("{") == 60 - 32 + 1


def test_overflow_is_kept_aside_by_name_when_a_table_has_no_room(rig: Rig) -> None:
    result = rig.project({"a": 1, "b": "x", "o": {"c": 2.5}, "d": True, "e": [1]}, max_columns=3)
    assert set(result.fit.columns) == {"a", "b"}
    assert unmapped(result.rows[0]) == {"o_c": 2.5, "d": True, "e": [1]}


def test_existing_columns_come_first_when_a_table_has_no_room(rig: Rig) -> None:
    table = table_of("t", [Column("z", Kind.INT64), Column("y", Kind.STRING)])
    result = rig.project({"a": 1, "b": 2, "z": 3}, existing=table, max_columns=4)
    assert result.rows[0]["z"] == 3
    assert result.rows[0]["a"] == 1
    assert unmapped(result.rows[0]) == {"b": 2}


def test_the_rest_of_its_object_is_kept_when_thousands_of_fields_overflow(rig: Rig) -> None:
    users = {f"user{number}": {"n": number} for number in range(3000)}
    event = {"kept": 1, "wide": {"x": 1} | users, "secret": "s"}
    mapping = MappingSettings(
        fields=(
            FieldSettings(action="remove", src="/secret"),
            FieldSettings(action="remove", src="/wide/user7/n"),
        )
    )
    result = rig.project(event, max_columns=4, mapping=mapping)
    row = result.rows[0]
    assert (row["kept"], row["wide_x"]) == (1, 1)
    text = row["_unmapped_data"]
    assert '"user2999":{"n":2999}' in text
    # what the mapping removed does not come back
    assert "secret" not in text
    assert '"n":7}' not in text


def test_the_rest_is_kept_when_there_are_too_many_paths(rig: Rig) -> None:
    event = {"a": 1} | {f"k{number}": number for number in range(25_000)}
    result = rig.project(event, {"a": 2}, max_columns=10)
    assert result.rows[1]["a"] == 2
    aside = unmapped(result.rows[0])
    assert aside["k24999"] == 24_999
    stored = {name: value for name, value in result.rows[0].items() if name != "_unmapped_data"}
    assert len(stored) + len(aside) == 25_001


def test_an_object_is_json_text_when_it_is_cast(rig: Rig) -> None:
    mapping = MappingSettings(fields=(FieldSettings(action="cast", src="/o", type="JSON"),))
    result = rig.project(b'{"o": {"a": [1, 2], "b": null}}', mapping=mapping)
    assert result.rows == [{"o": '{"a":[1,2],"b":null}'}]
    assert result.columns["o"].sql_type == "JSON"


def test_a_time_that_is_none_is_kept_aside_when_it_is_forced_to_be_one(rig: Rig) -> None:
    result = rig.project({"_timestamp": "yesterday"}, {"_timestamp": MOMENT})
    assert result.kinds == {"_timestamp": "TIMESTAMP"}
    assert unmapped(result.rows[0]) == {"_timestamp": "yesterday"}
    assert result.rows[1]["_timestamp"] == datetime(2026, 11, 16, 10)  # noqa: DTZ001


def test_moved_values_win_event_by_event_when_their_place_is_taken(rig: Rig) -> None:
    mapping = MappingSettings(fields=(FieldSettings(action="move", src="/new", dst="/old"),))
    result = rig.project({"old": 1}, {"old": 1, "new": 2}, {"new": 3}, mapping=mapping)
    assert [row["old"] for row in result.rows] == [1, 2, 3]


def test_no_python_runs_when_rows_are_projected(rig: Rig) -> None:
    event = {"a": 1, "b": {"c": "x"}, "_timestamp": MOMENT, "mixed": 1}
    result = rig.project(
        event, {"a": "x", "mixed": {"in": 1}}, existing=table_of("t", [Column("a", Kind.INT64)])
    )
    plan = result.frame._jdf.queryExecution().executedPlan().toString()
    assert plan.count("parse_events") == 1
    assert not [word for word in ("Python", "ArrowEval", "MapInArrow", "MapInPandas") if word in plan]


@pytest.mark.parametrize("empty", [{}, {"n": None}, {"o": {}}])
def test_there_is_no_column_when_there_is_no_value(rig: Rig, empty: dict[str, Any]) -> None:
    assert rig.project(empty).columns == {}


def test_the_least_common_fields_overflow_when_a_table_has_no_room(rig: Rig) -> None:
    rare = {f"rare{number}": number for number in range(3)}
    result = rig.project(
        {**rare, "often": 1}, {"often": 2, "late": 1}, {"late": 2}, {"late": 3}, max_columns=3
    )
    assert list(result.fit.columns) == ["often", "late"]
    assert unmapped(result.rows[0]) == rare


def test_context_columns_have_room_when_events_bring_more_fields_than_columns(rig: Rig) -> None:
    wide = {f"k{number:03}": number for number in range(300)}
    context = {"_timestamp": MOMENT, "api_key": "k", "source_ip": "1.2.3.4", "eventn_ctx": {"event_id": "e"}}
    [row] = rig.project(wide, max_columns=100).rows
    # 99 besides `_unmapped_data`, of which five are kept free
    assert len([name for name in row if name.startswith("k")]) == 94
    [row] = rig.project(wide | context, max_columns=100).rows
    assert row["eventn_ctx_event_id"] == "e"
    assert {"_timestamp", "api_key", "source_ip"} < set(row)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (Kind.FLOAT64, 9007199254740992, 9007199254740992.0),
        (Kind.FLOAT64, 9007199254740993, None),
        (Kind.FLOAT64, "0.1", 0.1),
        (Kind.FLOAT64, "0.10000000000000000001", None),
        (Kind.FLOAT64, "12345678901234567890123", None),
        (Kind.FLOAT64, "1e400", None),
        (Kind.FLOAT64, 1.2345678901234567e-300, 1.2345678901234567e-300),
        (Kind.FLOAT64, 1e300, 1e300),
        (Kind.TIMESTAMP, "2026-11-16T10:00:00.1234560Z", datetime(2026, 11, 16, 10, 0, 0, 123456)),  # noqa: DTZ001
        (Kind.TIMESTAMP, "2026-11-16T10:00:00.1234567Z", None),
    ],
)
def test_a_constant_is_exact_or_aside_when_the_table_has_its_column(
    rig: Rig, kind: Kind, value: Any, stored: Any
) -> None:
    table = table_of("events", [Column("c", kind)])
    mapping = MappingSettings(fields=(FieldSettings(action="constant", dst="/c", value=value),))
    [row] = rig.project({"n": 1}, existing=table, mapping=mapping).rows
    assert row.get("c") == stored
    assert unmapped(row) == ({} if stored is not None else {"c": value})
