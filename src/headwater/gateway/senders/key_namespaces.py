"""API keys that are bound to namespaces: with such a key a producer cannot change what others report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from headwater.http.request import Request
from headwater.settings import ApiKeySettings


class Namespaces:
    """The namespaces of a key: patterns in which `*` stands for any text."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self._split = [pattern.split("*") for pattern in patterns]

    def foreign(self, event: Any) -> str | None:
        """Return a namespace of a compliant event that is not one of these; None if all of them are."""
        for namespace in namespaces_of(event):
            if not any(_fits(parts, namespace) for parts in self._split):
                return namespace
        return None


def _fits(parts: Sequence[str], text: str) -> bool:
    """Return whether the parts between the stars of a pattern are in a text, in linear time.

    A regular expression of several stars takes hours for a namespace of a megabyte.
    """
    first, *middle = parts
    if not middle:
        return text == first
    last = middle.pop()
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        if (found := text.find(part, at, end)) < 0:
            return False
        at = found + len(part)
    return True


class KeyNamespaces:
    """Finds the namespaces of a request's API key. By digest, so timing does not reveal a key."""

    def __init__(self, keys: Sequence[str | ApiKeySettings]) -> None:
        self._bound: dict[bytes, Namespaces] = {}
        for each in keys:
            if isinstance(each, ApiKeySettings) and each.namespaces:
                namespaces = Namespaces(each.namespaces)
                self._bound[_digest(each.key.encode())] = namespaces
                # Some clients send characters beyond ASCII as latin-1.
                self._bound[_digest(each.key.encode("latin-1", "replace"))] = namespaces

    def of(self, request: Request) -> Namespaces | None:
        """Return the namespaces that the request's key is bound to; None if it is not bound."""
        if not self._bound:
            return None
        _, _, key = request.headers.get("authorization", "").partition(" ")
        return self._bound.get(_digest(key.strip().encode("latin-1")))


def namespaces_of(event: Any) -> Iterator[str]:
    """Yield the namespace of each job and dataset that an event names anywhere, some of them several times.

    No list of facets: a later version of OpenLineage, or another receiver of the event, may join other ones.
    """
    pending = [event]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            namespace = value.get("namespace")
            if isinstance(namespace, str) and isinstance(value.get("name"), str):
                yield namespace
            pending += value.values()


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()
