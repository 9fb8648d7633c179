"""What is wrong with values and keys, each told by its place."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec

__all__ = ["problems_of"]


def problems_of(raw: Any, kind: Any, path: str) -> Iterator[str]:
    """A line for each key that no field takes, with the nearest one that exists, and for each bad value.

    msgspec alone stops at the first; a person who mends a file wants to see all.
    """
    struct = _struct(kind)
    if struct is None or not isinstance(raw, dict):
        items = (
            get_args(_bare(kind))[:1] if get_origin(_bare(kind)) is tuple and isinstance(raw, list) else ()
        )
        if items and _struct(items[0]) is not None:
            for i, item in enumerate(raw):
                yield from problems_of(item, items[0], f"{path}[{i}]")
        else:
            yield from _mismatch(raw, kind, path)
        return
    by_attribute = typing.get_type_hints(struct, include_extras=True)
    fields = msgspec.structs.fields(struct)
    hints = {field.encode_name: by_attribute[field.name] for field in fields}
    prefix = f"{path}." if path else ""
    for key, value in raw.items():
        if key in hints:
            yield from problems_of(value, hints[key], f"{prefix}{key}")
            continue
        near = difflib.get_close_matches(str(key), hints, n=1)
        guess = f"did you mean `{prefix}{near[0]}`?" if near else f"known are {', '.join(sorted(hints))}."
        yield f"`{prefix}{key}` is not a setting; {guess}"
    for field in fields:
        if field.required and field.encode_name not in raw:
            yield f"`{prefix}{field.encode_name}` is missing"


def _mismatch(raw: Any, kind: Any, path: str) -> Iterator[str]:
    try:
        msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError as error:
        text, _, inner = str(error).partition(" - at ")
        yield f"`{path}{inner.strip('`').removeprefix('$')}`: {text[:1].lower()}{text[1:]}"


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _struct(kind: Any) -> type[msgspec.Struct] | None:
    bare = _bare(kind)
    options = get_args(bare) if get_origin(bare) in (types.UnionType, typing.Union) else (bare,)
    for option in options:
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return option
    return None
