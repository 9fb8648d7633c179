from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.delivery.keys import KNOWN_KEYS, Keys, parse_pointer
from headwater.errors import SettingsError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def key(group_by: tuple[str, ...], event: Any) -> str:
    return Keys(group_by).of(orjson.dumps(event)).id


def test_all_events_share_a_key_when_nothing_is_grouped_by() -> None:
    keys = Keys()
    assert not keys.is_grouped
    assert keys.of(b'{"a": 1}') == keys.of(b"not json")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "x"}, {"a": "y"}),
        ({"a": ""}, {}),
        ({"a": None}, {}),
        ({"a": None}, {"a": ""}),
        ({"a": 1}, {"a": "1"}),
        ({"a": True}, {"a": 1}),
        ({"a": "x", "b": "yz"}, {"a": "xy", "b": "z"}),
        ({"a": "x"}, {"b": "x"}),
        ({"a": [1, 2]}, {"a": [12]}),
    ],
)
def test_keys_differ_when_a_value_does(one: Any, other: Any) -> None:
    assert key(("/a", "/b"), one) != key(("/a", "/b"), other)


@given(one=JSON, other=JSON, third=JSON)
def test_keys_are_equal_exactly_when_the_values_are(one: Any, other: Any, third: Any) -> None:
    same = orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
    assert (key(("/a",), {"a": one, "x": third}) == key(("/a",), {"a": other})) == same


def test_the_info_holds_the_fields_when_they_are_there() -> None:
    keys = Keys(("/run/runId", "/list/1", "/absent", "/odd~1name~0"))
    assert keys.is_grouped
    found = keys.of(orjson.dumps({"run": {"runId": "r1"}, "list": ["a", "b"], "odd/name~": 7}))
    assert found.info == {"run/runId": "r1", "list/1": "b", "odd~1name~0": 7}
    assert found.text == '["r1","b",null,7]'


def test_the_text_is_the_value_when_there_is_one_and_it_is_text() -> None:
    assert Keys(("/a",)).of(b'{"a": "plain"}').text == "plain"
    assert Keys(("/a",)).of(b'{"a": 5}').text == "[5]"


def test_an_event_has_a_key_when_it_is_no_json() -> None:
    keys = Keys(("/a",))
    assert keys.of(b"not json") == keys.of(b"{}")


def test_the_fields_are_gone_when_the_key_is_taken_out() -> None:
    keys = Keys(("/run/runId", "/a", "/absent/b"))
    event = {"run": {"runId": "r1", "x": 1}, "a": 1, "b": 2}
    assert keys.strip(event) == {"run": {"x": 1}, "b": 2}


@pytest.mark.parametrize("pointer", ["", "/", "run", "run/id"])
def test_a_pointer_is_refused_when_it_is_none(pointer: str) -> None:
    with pytest.raises(SettingsError, match="JSON pointer"):
        parse_pointer(pointer)


@pytest.mark.parametrize("path", ["/list/9", "/list/x", "/list/-1", "/text/0", "/list/٣"])
def test_a_field_is_absent_when_the_path_leads_nowhere(path: str) -> None:
    assert Keys((path,)).of(b'{"list": [1], "text": "abc"}').info == {}


def test_a_key_stays_the_same_when_more_were_seen_than_are_remembered() -> None:
    keys = Keys(("/a",))
    first = keys.of(b'{"a": 0}')
    assert keys.of(b'{"a": 0, "b": 1}') is first
    ids = {keys.of(b'{"a": %d}' % i).id for i in range(KNOWN_KEYS + 1)}
    assert len(ids) == KNOWN_KEYS + 1
    assert keys.of(b'{"a": 0}') == first
