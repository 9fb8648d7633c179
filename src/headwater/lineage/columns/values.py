"""Values of columns: edges of the whole, and more exact edges of its parts.

Parts are named as in the schema facet: the fields of a struct by name, `_element` of an array, `key` and
`value` of a map. JSON text has parts by JSON pointer, as far as the query itself contains the paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.lineage.columns.edge_sets import (
    EMPTY,
    IDENTITY,
    TRANSFORMATION,
    Edges,
    bits,
    transformation_of,
    union,
)
from headwater.lineage.naming.names import DatasetId

ELEMENT, KEY, VALUE = "_element", "key", "value"


class Source(NamedTuple):
    """An input column, or a part of one: `leaf` is the plan node that reads it, 0 and up."""

    leaf: int
    datasets: tuple[DatasetId, ...]
    path: tuple[str, ...]
    pointer: str = ""


class Sources:
    """The input columns of the graph so far, each with its bit."""

    def __init__(self) -> None:
        self.all: list[Source] = []
        self._places: dict[Source, int] = {}

    def place(self, source: Source) -> int:
        """The bit of a source."""
        found = self._places.get(source)
        if found is None:
            found = self._places[source] = len(self.all)
            self.all.append(source)
        return found

    def edges(self, source: Source) -> Edges:
        """The source itself, unchanged."""
        return Edges({IDENTITY: 1 << self.place(source)})

    def leaves(self, edges: Edges) -> set[int]:
        """The plan's leaves that a set of edges comes from."""
        return {self.all[place].leaf for place in bits(edges.all())}


class Value:
    """The edges of a whole value; `part` gives those of a part of it."""

    __slots__ = ("edges",)
    deep = False
    """Whether a part may have other edges than the whole."""

    def __init__(self, edges: Edges) -> None:
        self.edges = edges

    def part(self, name: str) -> Value:
        """A part by name; without known parts it depends on all inputs of the whole."""
        return ScalarValue(self.edges.then(TRANSFORMATION))


class ScalarValue(Value):
    """A value without known parts."""

    __slots__ = ()


NO_INPUT = ScalarValue(EMPTY)


class InputValue(Value):
    """A column of an input, or a part of one: parts of it are parts of the input."""

    __slots__ = ("_sources", "source")
    deep = True

    def __init__(self, sources: Sources, source: Source) -> None:
        super().__init__(sources.edges(source))
        self._sources = sources
        self.source = source

    def part(self, name: str) -> Value:
        return InputValue(self._sources, self.source._replace(path=(*self.source.path, name)))


class NestedValue(Value):
    """A struct, an array or a map that the query builds from other values."""

    __slots__ = ("base", "parts")
    deep = True

    def __init__(self, parts: dict[str, Value], base: Value | None = None) -> None:
        whole = union(*(value.edges for value in parts.values()), *([base.edges] if base else []))
        super().__init__(whole.then(TRANSFORMATION))
        self.parts = parts
        self.base = base  # the source of the other parts, as with `withField`

    def part(self, name: str) -> Value:
        found = self.parts.get(name)
        if found is not None:
            return found
        return self.base.part(name) if self.base is not None else super().part(name)


class _AnyOf(Value):
    """One of several values, as after a union or a CASE."""

    __slots__ = ("values",)
    deep = True

    def __init__(self, values: Sequence[Value]) -> None:
        super().__init__(union(*(value.edges for value in values)))
        self.values = values

    def part(self, name: str) -> Value:
        return any_of(value.part(name) for value in self.values)


class _Transformed(Value):
    """A value after a transformation that applies to its parts as well, plus other edges."""

    __slots__ = ("_more", "_step", "_value")
    deep = True

    def __init__(self, value: Value, step: int, more: Edges) -> None:
        super().__init__(union(value.edges.then(step), more))
        self._value = value
        self._step = step
        self._more = more

    def part(self, name: str) -> Value:
        return transformed(self._value.part(name), self._step, self._more)


class _OneOf(_Transformed):
    """One of several values, unchanged: parsing it gives one of the parsed values."""

    __slots__ = ()

    def parsed(self, sources: Sources, path: tuple[str, ...]) -> Value:
        return one_of([json_at(sources, value, path) for value in self._alternatives()], self._more)

    def _alternatives(self) -> Sequence[Value]:
        return self._value.values if isinstance(self._value, _AnyOf) else [self._value]


class _Json(Value):
    """The value at a JSON pointer inside a text or a variant."""

    __slots__ = ("pointer", "sources", "text")
    deep = True

    def __init__(self, sources: Sources, text: Value, pointer: tuple[str, ...]) -> None:
        self.sources = sources
        self.text = text
        self.pointer = pointer
        super().__init__(self._pointed().then(TRANSFORMATION))

    def _pointed(self) -> Edges:
        if not self.pointer:
            return self.text.edges
        pointer = "".join("/" + _escape(part) for part in self.pointer)
        masks: dict[int, int] = {}
        for number, mask in self.text.edges.masks.items():
            if transformation_of(number).direct and transformation_of(number).subtype == "IDENTITY":
                # the pointer is valid in the text as it was read, not after a transformation
                pointed = 0
                for place in bits(mask):
                    source = self.sources.all[place]
                    pointed |= 1 << self.sources.place(source._replace(pointer=source.pointer + pointer))
                mask = pointed
            masks[number] = masks.get(number, 0) | mask
        return Edges(masks)

    def part(self, name: str) -> Value:
        return _Json(self.sources, self.text, (*self.pointer, "*" if name in _ANY else name))


# Any element of a JSON array and any value of an object; a pointer writes `*`.
_ANY = {ELEMENT, VALUE}


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def json_at(sources: Sources, text: Value, path: Iterable[str] = ()) -> Value:
    """The parsed text, or its part at a path; of a parsed value, the path continues its pointer."""
    path = tuple(path)
    if isinstance(text, _Json):
        return _Json(sources, text.text, (*text.pointer, *path))
    if isinstance(text, _OneOf):
        return text.parsed(sources, path)
    return _Json(sources, text, path)


def any_of(values: Iterable[Value]) -> Value:
    """Any one of the values."""
    distinct = list({id(value): value for value in values if value.edges or value.deep}.values())
    if not distinct:
        return NO_INPUT
    if len(distinct) == 1:
        return distinct[0]
    if any(value.deep for value in distinct):
        return _AnyOf(distinct)
    return ScalarValue(union(*(value.edges for value in distinct)))


def transformed(value: Value, step: int, more: Edges = EMPTY) -> Value:
    """The value after a transformation, plus other edges."""
    if value.deep:
        return _Transformed(value, step, more)
    return ScalarValue(union(value.edges.then(step), more))


def one_of(values: Sequence[Value], more: Edges = EMPTY) -> Value:
    """One of the values, unchanged; `more` decides which."""
    some = [value for value in values if value.edges or value.deep]
    if not some:
        return ScalarValue(more) if more else NO_INPUT
    return _OneOf(some[0] if len(some) == 1 else _AnyOf(some), TRANSFORMATION, more)
