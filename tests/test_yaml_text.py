"""YAML as settings are written."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headwater.formats.yaml_text import BadYaml, load_yaml


def problems(text: str) -> list[str]:
    with pytest.raises(BadYaml) as raised:
        load_yaml(text)
    return raised.value.problems


def test_each_repeated_key_is_named_with_its_place_when_keys_are_repeated() -> None:
    text = "outlets: [{name: a}]\ngateway:\n  port: 1\n  host: h\n  port: 2\noutlets: []\n"
    assert problems(text) == [
        "line 5, column 3: the key `port` is there already, in line 3",
        "line 6, column 1: the key `outlets` is there already, in line 1",
    ]


def test_what_others_read_is_kept_when_a_key_is_repeated() -> None:
    with pytest.raises(BadYaml) as raised:
        load_yaml("a: 1\nb: 2\na: 3")
    assert raised.value.value == {"a": 3, "b": 2}


def test_a_merged_key_may_be_set_again_when_it_comes_from_an_anchor() -> None:
    text = "a: &a {x: 1, y: 1}\nb: {c: &c {<<: *a, y: 2}}\nd: {<<: *c, y: 3}\ne: {f: {g: {<<: *c}}}"
    found = load_yaml(text)
    assert found["d"] == {"x": 1, "y": 3}
    assert found["e"]["f"]["g"] == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"),
        ("190:20:30.15", "190:20:30.15"),
        ("010", "010"),
        ("0o10", "0o10"),
        ("0x1F", "0x1F"),
        ("0b11", "0b11"),
        ("2026-01-31", "2026-01-31"),
        ("007", "007"),
        ("0", 0),
        ("-8", -8),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("'1'", "1"),
        ("null", None),
    ],
)
def test_a_value_is_a_number_only_when_a_person_reads_one(text: str, value: Any) -> None:
    found = load_yaml(f"a: {text}")["a"]
    assert (found, type(found)) == (value, type(value))


def test_keys_are_text_when_they_look_like_something_else() -> None:
    assert load_yaml("on: 1\n2: 2\nnull: 3\n1.5: 4") == {"on": 1, "2": 2, "null": 3, "1.5": 4}


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: &a [*a]",
        "a: &a {b: {c: *a}}",
        "? [a, b]\n: 1",
        "? {a: b}\n: 1",
        "[" * 5_000,
        "a: " + "9" * 5_000,
        "a: !!int x",
        "a: !!bool x",
        "a: !!float x",
        "a: !!timestamp x",
        "a: !!binary x",
        "a: !!set {x}",
        "a: !!omap [x: 1]",
        "a: !!python/name:os.system x",
        "--- a\n--- b",
        "\x00",
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_a_text_is_refused_when_it_is_no_plain_yaml(text: str) -> None:
    assert problems(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_a_value_comes_back_when_it_was_written_as_yaml(value: Any) -> None:
    # escaped, since PyYAML writes NEL (U+0085) as it is, and reads a line break
    assert load_yaml(yaml.safe_dump(value)) == value


@given(st.text(alphabet=" \n:-[]{}&*!|>'\"%#?,<~0123456789abx._@`\\", max_size=60))
def test_only_bad_yaml_is_raised_when_the_text_is_anything(text: str) -> None:
    with contextlib.suppress(BadYaml):
        yaml.safe_dump(load_yaml(text))
