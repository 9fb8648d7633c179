"""Table names by template: what is compiled, what is refused and where."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.pipeline.steps.batch_schema import table_name
from headwater.pipeline.steps.read_lines import REASON
from headwater.pipeline.steps.route import TABLE, Router, name_tables
from headwater.pipeline.steps.template import FILTERS, Template, TemplateRefused
from tests.pipeline.rig import Rig

EVENT = {
    "event_type": "Page View",
    "empty": "",
    "flag": False,
    "n": 7,
    "user": {"plan": "pro", "id": 12, "my-key": "dash"},
    "odd key": "x",
    "_timestamp": "2026-01-03T10:00:00.5Z",
    "name": "shop",
}
NAMES = {
    "events": "events",
    "{{ event_type }}": "page_view",
    "{{ event_type | lower | default('events') }}": "page_view",
    "{{ missing | default('events') }}": "events",
    "{{ missing | d }}": "",
    "{{ empty | default('x') }}": "",
    "{{ empty | default('x', true) }}": "x",
    "{{ missing or 'y' }}": "y",
    "{{ name and 'both' }}": "both",
    "a_{{ user.plan | upper }}_{{ user['id'] }}": "a_pro_12",
    "{{ user['my-key'] }}": "dash",
    "{{ _['odd key'] }}": "x",
    "{{ '  x ' | trim }}": "x",
    "{{ event_type | replace(' ', '-') }}": "page_view",
    "{{ 'aBC' | capitalize }}{{ 'dE f' | title }}": "abcde_f",
    "{{ _timestamp | date('%Y_%m_%d') }}": "2026_01_03",
    "w{{ _timestamp | date('%G%V') }}": "w202601",
    "{{ name ~ '_' ~ n ~ missing }}": "shop_7",
    "{{ 'p' + name }}": "pshop",
    "{% if n > 5 %}many{% elif n == 5 %}five{% else %}few{% endif %}": "many",
    "{% if flag %}on{% else %}off{% endif %}": "off",
    "{{ 'in' if user.plan in ['pro', 'team'] else 'out' }}": "in",
    "{{ 'sub' if 'age' in event_type else 'none' }}": "sub",
    "{{ 'd' if user.plan is defined and missing is not defined and not flag }}": "d",
    "{{ 'ne' if missing != 'x' else 'eq' }}": "ne",
    "{% if missing %}x{% endif %}": "",
    "{{ user }}": table_name('{"plan":"pro","id":12,"my-key":"dash"}', 63),
    "{# a comment #}t": "t",
}


def named(rig: Rig, template: str, *events: Any) -> list[tuple[str, str]]:
    frame = name_tables(rig.lines(*events), Template(template), max_identifier_length=63)
    return [(row[TABLE], row[REASON] or "") for row in frame.collect()]


def test_every_template_gives_its_name_when_it_is_compiled(rig: Rig) -> None:
    lines = rig.lines(EVENT)
    found = {
        text: name_tables(lines, Template(text), max_identifier_length=63).collect()[0][TABLE]
        for text in NAMES
    }
    assert found == NAMES


@pytest.mark.parametrize(
    ("number", "test", "expected"),
    [
        ("9007199254740993", "n == 9007199254740992", "no"),
        ("9007199254740993", "n != 9007199254740992", "yes"),
        ("9007199254740993", "n > 9007199254740992", "yes"),
        ("9007199254740992.5", "9007199254740992 < n", "yes"),
        ("9223372036854775807", "n >= 9223372036854775808", "no"),
        ("5.0", "n == 5", "yes"),
        ("0.10", "n == 0.1", "yes"),
        ("1e3", "n == 1000", "yes"),
        ("1e19", "n == 10000000000000000000", "yes"),
        ('"many"', "n == 5", "no"),
        ('"many"', "n != 5", "yes"),
        ("null", "n < 5", "no"),
    ],
)
def test_numbers_are_compared_by_their_digits_when_a_template_has_one(
    rig: Rig, number: str, test: str, expected: str
) -> None:
    template = f"{{{{ 'yes' if {test} else 'no' }}}}"
    assert named(rig, template, f'{{"n": {number}}}'.encode()) == [(expected, "")]


def test_the_name_is_known_without_events_when_there_is_no_code() -> None:
    assert Template(" my table ").constant == "my table"
    assert Template("{# only a comment #}").constant == ""
    assert Template("{{ event_type }}").constant is None


@pytest.mark.parametrize(
    ("template", "line", "column", "reason"),
    [
        ("{{ a | nope }}", 1, 8, "no filter `nope`"),
        ("x\n{{ a | shout }}", 2, 8, "no filter `shout`"),
        ("{% for x in y %}{% endfor %}", 1, 1, "`for` is not possible"),
        ("{{ a() }}", 1, 1, "`call` is not possible"),
        ("{{ a * 2 }}", 1, 1, "`mul` is not possible"),
        ("{% set a = 1 %}", 1, 1, "`assign` is not possible"),
        ("{{ a is odd }}", 1, 9, "no test `odd`"),
        ("{{ a[0] }}", 1, 1, "by name"),
        ("{{ a ", 1, 5, "unexpected end"),
        ("{{ t | date('%Q') }}", 1, 14, "`%Q` is not known"),
        ("{{ t | date }}", 1, 8, "needs a pattern"),
        ("{{ t | replace('a') }}", 1, 8, "old and new"),
        ("{% if a %}x", 1, 11, "Unexpected end"),
        ("{{ a.__class__() }}", 1, 1, "`call` is not possible"),
        ("{% include 'x' %}", 1, 1, "`include` is not possible"),
    ],
)
def test_a_template_is_refused_with_its_position_when_it_has_anything_else(
    template: str, line: int, column: int, reason: str
) -> None:
    with pytest.raises(TemplateRefused) as caught:
        Template(template)
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"line {line}, column {column}" in str(caught.value)
    assert all(name in caught.value.hint for name in FILTERS)


def test_an_event_fails_when_its_table_name_has_an_error(rig: Rig) -> None:
    events: list[dict[str, str]] = [{"_timestamp": "soon"}, {}, {"_timestamp": "2026-11-16T10:00:00Z"}]
    assert named(rig, "e_{{ _timestamp | date('%m') }}", *events) == [
        ("", 'the filter `date` got "soon", which is not a time'),
        ("", "the filter `date` got nothing, which is not a time"),
        ("e_11", ""),
    ]


def test_only_the_branch_that_is_taken_can_fail_when_there_are_two(rig: Rig) -> None:
    template = "{% if at %}{{ at | date('%Y') }}{% else %}timeless{% endif %}"
    assert named(rig, template, {"at": "soon"}, {"x": 1}) == [
        ("", 'the filter `date` got "soon", which is not a time'),
        ("timeless", ""),
    ]


def test_names_are_sanitised_alike_when_sql_or_python_does_it(rig: Rig) -> None:
    names = [
        "A b",
        "ünïcode",
        "x" * 70,
        "x" * 63,
        "'; DROP --",
        "名前",
        "tab\there",
        "a`b",
        "_unmapped",
        "2nd",
        "\\",
        "\u212aelvin",
        "İ",
        "😀",
    ]
    found = [name for name, _ in named(rig, "{{ t }}", *({"t": name} for name in names))]
    assert found == [table_name(name, 63) for name in names]


def test_names_have_no_blanks_around_them_when_the_template_has(rig: Rig) -> None:
    blanks = " \t\n Events\u00a0 \n\t"
    constant = Router(Template(blanks), max_identifier_length=63).constant
    assert named(rig, blanks.replace("Events", "{{ t }}"), {"t": "Events"}) == [(constant, "")]
    assert constant.startswith("events")


def test_a_malformed_line_is_no_skipped_event_when_the_name_is_empty(rig: Rig) -> None:
    found = named(rig, "{{ t }}", {"t": ""}, b'{"t": ', b"[1]", b"", b"  ")
    assert [name for name, _ in found] == ["", "", ""]
    assert [reason[:8] for _, reason in found] == ["", "not JSON", "not a JS"]
