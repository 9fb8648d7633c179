"""A cache for functions of texts that clients choose, bounded in bytes as well as in entries (G8)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, TypeVar, cast

MAX_CHARACTERS = 256  # of all arguments of a call together; with more the result is computed each time

F = TypeVar("F", bound=Callable[..., Any])


def text_cache(entries: int) -> Callable[[F], F]:
    """Cache the results of a function of one or two texts, except for long texts."""

    def decorate(function: F) -> F:
        cached = lru_cache(entries)(function)

        def one(text: str) -> Any:
            return cached(text) if len(text) <= MAX_CHARACTERS else function(text)

        def two(first: str, second: str) -> Any:
            if len(first) + len(second) <= MAX_CHARACTERS:
                return cached(first, second)
            return function(first, second)

        return cast(F, wraps(function)(one if len(signature(function).parameters) == 1 else two))

    return decorate
