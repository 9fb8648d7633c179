"""Which types a generic class was given: `MyBuilder(AbstractRunFacetBuilder[RDD])` is for RDDs."""

from __future__ import annotations

import types
import typing
from functools import lru_cache
from typing import Any, TypeVar, get_args, get_origin

__all__ = ["type_argument"]


@lru_cache(maxsize=1024)
def type_argument(cls: type, base: type) -> tuple[type, ...] | None:
    """The classes that `cls` gives for the first parameter of the generic class `base`, however many classes
    stand between; several for a union. None where it is left open: then every object is meant."""
    found = _resolved(cls, base)
    return None if found is None else _classes(found)


def _resolved(cls: type, base: type) -> Any:
    """The argument itself: a class, a union, a TypeVar that is still open, or None."""
    if cls is base:
        parameters = getattr(cls, "__parameters__", ())
        return parameters[0] if parameters else None
    for given in _bases(cls):
        origin = get_origin(given) or given
        if not (isinstance(origin, type) and issubclass(origin, base)):
            continue
        found = _resolved(origin, base)
        if isinstance(found, TypeVar):
            parameters = list(getattr(origin, "__parameters__", ()))
            arguments = get_args(given)
            if found in parameters and parameters.index(found) < len(arguments):
                found = arguments[parameters.index(found)]
        if found is not None:
            return found
    return None


def _bases(cls: type) -> tuple[Any, ...]:
    own: tuple[Any, ...] | None = cls.__dict__.get("__orig_bases__")
    return own if own is not None else cls.__bases__


def _classes(found: Any) -> tuple[type, ...] | None:
    if isinstance(found, TypeVar):
        return _classes(found.__bound__) if found.__bound__ is not None else None
    if found is Any or found is object:
        return None
    if get_origin(found) in (typing.Union, types.UnionType):
        members = [_classes(member) for member in get_args(found)]
        if any(member is None for member in members):
            return None
        return tuple(cls for member in members if member for cls in member)
    origin = get_origin(found) or found
    return (origin,) if isinstance(origin, type) else None
