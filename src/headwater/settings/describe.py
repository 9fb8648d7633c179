"""The settings as data, from which `headwater init` and docs/settings.md are generated."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec


class Field(NamedTuple):
    """One setting: its name, meaning, type in words, default, and the Struct where it is a section."""

    name: str
    meaning: str
    kind: str
    default: Any
    is_required: bool
    struct: type[msgspec.Struct] | None
    is_optional: bool
    is_list: bool


def describe(struct: type[msgspec.Struct]) -> Iterator[Field]:
    """The fields of a settings Struct in the order in which they are written."""
    hints = typing.get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        metas = [extra for extra in get_args(hint)[1:] if isinstance(extra, msgspec.Meta)]
        bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        options = get_args(bare) if get_origin(bare) in (types.UnionType, typing.Union) else (bare,)
        is_list = get_origin(bare) in (tuple, list)
        item = get_args(bare)[0] if is_list else None
        nested = get_args(item) if get_origin(item) in (types.UnionType, typing.Union) else (item,)
        nested = nested if is_list else options
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield Field(
            name=field.encode_name,
            meaning=" ".join(meta.description for meta in metas if meta.description),
            kind=_words(bare) + _limits(metas),
            default=None if default is msgspec.NODEFAULT else default,
            is_required=field.required,
            struct=next((kind for kind in nested if _is_struct(kind)), None),
            is_optional=type(None) in options,
            is_list=is_list,
        )


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _words(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Annotated:
        return _words(get_args(kind)[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_words(option) for option in get_args(kind))
    if origin is Literal:
        return " or ".join(f"`{option}`" for option in get_args(kind))
    if origin in (tuple, list):
        return f"list of {_words(get_args(kind)[0])}"
    if origin is dict or _is_struct(kind):
        return "section"
    names = {
        str: "text",
        int: "whole number",
        float: "number",
        bool: "`true` or `false`",
        type(None): "`null`",
        Any: "any value",
    }
    return names.get(kind, getattr(kind, "__name__", str(kind)))


TECHNICAL = 2**31 - 1  # a limit from here on is not of interest to a reader


def _limits(metas: list[msgspec.Meta]) -> str:
    found = [
        f"{sign} {bound:,.15g}"
        for meta in metas
        for sign, bound in (("≥", meta.ge), (">", meta.gt), ("≤", meta.le), ("<", meta.lt))
        if bound is not None and bound < TECHNICAL
    ]
    return f" {', '.join(found)}" if found else ""
