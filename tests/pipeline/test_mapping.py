"""The mapping step, on trees of fields."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.pipeline.steps.field_tree import Constant, Field, Json, JsonTypes
from headwater.pipeline.steps.mapping import MappedField, map_fields, problems
from headwater.settings import FieldSettings, MappingSettings


def tree(value: Any, path: tuple[str, ...] = ()) -> Field:
    """Fields as nested mappings; a leaf is the JSON types of its values."""
    if isinstance(value, JsonTypes):
        return Field(Json(path), value)
    children = {name: tree(item, (*path, name)) for name, item in value.items()}
    return Field(Json(path), JsonTypes.OBJECT, children)


def mapped(value: Any, *fields: FieldSettings, keep_unmapped: bool = True) -> dict[str, list[Any]]:
    """The origins of each mapped field, by its path."""
    mapped = map_fields(tree(value), MappingSettings(keep_unmapped=keep_unmapped, fields=fields))
    return {
        "/".join(mapped_field.path): [origin(node) for node in mapped_field.fields] for mapped_field in mapped
    }


def origin(node: Field) -> str:
    assert isinstance(node.source, Json | Constant)
    return "/".join(node.source.path) if isinstance(node.source, Json) else f"={node.source.text}"


def move(src: str, dst: str, type: str = "") -> FieldSettings:
    return FieldSettings(action="move", src=src, dst=dst, type=type)


def mapped_field(mapped: list[MappedField], *path: str) -> MappedField:
    return next(each for each in mapped if each.path == path)


S, I, F, B = JsonTypes.STRING, JsonTypes.INT64, JsonTypes.FLOAT64, JsonTypes.BOOL  # noqa: E741
EVENT = {"a": {"x": I, "y": S}, "b": S, "n": JsonTypes(0)}


def test_fields_are_flattened_in_their_order_when_nothing_is_mapped() -> None:
    assert mapped(EVENT) == {"a/x": ["a/x"], "a/y": ["a/y"], "b": ["b"]}


def test_a_subtree_goes_elsewhere_when_it_is_moved() -> None:
    assert mapped(EVENT, move("/a", "/c/d")) == {"b": ["b"], "c/d/x": ["a/x"], "c/d/y": ["a/y"]}


def test_siblings_stay_when_something_is_moved_beside_them() -> None:
    # upstream lays moved objects over whole top-level keys and loses what is beside them
    assert mapped(EVENT, move("/b", "/a/z")) == {"a/x": ["a/x"], "a/y": ["a/y"], "a/z": ["b"]}


def test_a_moved_value_has_priority_when_its_place_is_taken() -> None:
    assert mapped(EVENT, move("/b", "/a/x")) == {"a/x": ["b", "a/x"], "a/y": ["a/y"]}


def test_moves_read_the_event_as_it_was_when_they_exchange_fields() -> None:
    assert mapped({"p": S, "q": I}, move("/p", "/q"), move("/q", "/p")) == {"p": ["q"], "q": ["p"]}


def test_one_source_feeds_two_places_when_it_is_moved_twice() -> None:
    assert mapped({"p": S}, move("/p", "/q"), move("/p", "/r")) == {"q": ["p"], "r": ["p"]}


def test_an_object_is_spread_when_it_is_moved_to_the_root() -> None:
    assert mapped(EVENT, move("/a", "/")) == {"b": ["b"], "x": ["a/x"], "y": ["a/y"]}


def test_a_subtree_is_gone_when_it_is_removed() -> None:
    assert mapped(EVENT, FieldSettings(action="remove", src="/a")) == {"b": ["b"]}


def test_a_removed_field_stays_removed_when_its_parent_is_moved() -> None:
    fields = (move("/a", "/c"), FieldSettings(action="remove", src="/a/y"))
    assert mapped(EVENT, *fields) == {"b": ["b"], "c/x": ["a/x"]}


def test_a_constant_is_set_when_it_is_configured() -> None:
    constant = FieldSettings(action="constant", dst="origin/shop", value=7)
    assert mapped({"b": S}, constant) == {"b": ["b"], "origin/shop": ["=7"]}


@pytest.mark.parametrize(
    ("value", "text", "seen"),
    [(True, "true", B), (3, "3", I), (1.5, "1.5", F), ("x", "x", S), ([1, "a"], '[1,"a"]', JsonTypes.ARRAY)],
    ids=["bool", "int", "float", "text", "list"],
)
def test_a_constant_has_the_kind_of_its_value_when_no_type_is_given(
    value: Any, text: str, seen: JsonTypes
) -> None:
    line = FieldSettings(action="constant", dst="c", value=value)
    found = mapped_field(map_fields(tree({}), MappingSettings(fields=(line,))), "c")
    assert found.fields[0].source == Constant(text)
    assert found.fields[0].json_types == seen


def test_only_mapped_fields_stay_when_unmapped_ones_are_not_kept() -> None:
    event = EVENT | {"_timestamp": S, "eventn_ctx": {"event_id": S, "url": S}, "z": I}
    fields = (move("/b", "/c"), FieldSettings(action="cast", src="/z", type="double"))
    # the time and the id always stay
    assert mapped(event, *fields, keep_unmapped=False) == {
        "z": ["z"],
        "_timestamp": ["_timestamp"],
        "eventn_ctx/event_id": ["eventn_ctx/event_id"],
        "c": ["b"],
    }


def test_keys_with_special_characters_are_found_when_pointers_escape_them() -> None:
    assert mapped({"a/b": {"c~d": S, "e.f": I}}, move("/a~1b/c~0d", "/x")) == {
        "a/b/e.f": ["a/b/e.f"],
        "x": ["a/b/c~d"],
    }


def test_a_type_is_assigned_when_a_field_is_cast_by_src_or_by_dst() -> None:
    for line in (
        FieldSettings(action="cast", src="/b", type="varchar(10)"),
        FieldSettings(action="cast", dst="/b", type="varchar(10)"),
    ):
        assert (
            mapped_field(map_fields(tree(EVENT), MappingSettings(fields=(line,))), "b").type == "varchar(10)"
        )


def test_a_cast_goes_along_when_its_field_is_moved() -> None:
    fields = (FieldSettings(action="cast", src="/b", type="date"), move("/b", "/day"))
    assert mapped_field(map_fields(tree(EVENT), MappingSettings(fields=fields)), "day").type == "date"


def test_a_type_is_assigned_when_a_move_names_one() -> None:
    found = mapped_field(
        map_fields(tree(EVENT), MappingSettings(fields=(move("/b", "/c", "LowCardinality(String)"),))), "c"
    )
    assert found.type == "LowCardinality(String)"


def test_an_object_is_kept_whole_when_it_is_cast() -> None:
    line = FieldSettings(action="cast", src="/a", type="jsonb")
    mapped = map_fields(tree(EVENT), MappingSettings(fields=(line,)))
    assert [each.path for each in mapped] == [("a",), ("b",)]
    assert mapped_field(mapped, "a").is_text


def test_times_are_cast_by_themselves_when_the_event_has_them() -> None:
    # the two implicit mappings
    event = {"_timestamp": S, "eventn_ctx": {"utc_time": S}}
    mapped = map_fields(tree(event), MappingSettings())
    assert [each.type for each in mapped] == ["TIMESTAMP", "TIMESTAMP"]


def test_the_configured_mapping_has_priority_when_it_casts_an_implicit_field() -> None:
    line = FieldSettings(action="cast", src="/_timestamp", type="text")
    assert (
        mapped_field(map_fields(tree({"_timestamp": S}), MappingSettings(fields=(line,))), "_timestamp").type
        == "text"
    )


def test_every_mistake_is_named_when_a_mapping_is_checked() -> None:
    fields = (
        FieldSettings(action="move", src="/a"),
        FieldSettings(action="cast", src="/a"),
        FieldSettings(action="constant", dst="/b"),
        FieldSettings(action="remove"),
        move("/x", "/twice"),
        move("/y", "twice"),
    )
    found = list(problems(MappingSettings(fields=fields)))
    assert [text.partition("`:")[0].strip("`") for text in found] == [f"fields[{n}]" for n in (0, 1, 2, 3, 5)]
    assert "fields[4]" in found[-1]
