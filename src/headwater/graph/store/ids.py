"""Ids of the graph: each follows from the text that it stands for, and from nothing else.

So the same events give the same ids in whatever order they come, ties are decided the same way everywhere,
and folding an edge needs no lookup. The two lowest bits tell what an id stands for.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b

__all__ = [
    "MAX_TEXT",
    "WHOLE",
    "Kind",
    "column_id",
    "dataset_id",
    "field_id",
    "job_id",
    "kind_of",
    "shortened",
]

MAX_TEXT = 2_000  # characters of a name; a longer one is cut, and its digest put behind (G8)
WHOLE = 0  # in place of a field: the dataset as a whole


class Kind(IntEnum):
    """What an id stands for."""

    DATASET = 0
    JOB = 1
    COLUMN = 2
    FIELD = 3


def kind_of(id: int) -> Kind:
    """What the id stands for."""
    return Kind(id & 3)


def _id(kind: Kind, text: bytes) -> int:
    digest = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
    return (digest >> 3 << 2) | kind  # positive in SQLite's 64 bits


def _pair(kind: Kind, namespace: str, name: str) -> int:
    first = namespace.encode()
    return _id(kind, b"%d:%b%b" % (len(first), first, name.encode()))


@lru_cache(maxsize=20_000)
def dataset_id(namespace: str, name: str) -> int:
    """The id of a dataset's name; a dataset with aliases has several names."""
    return _pair(Kind.DATASET, namespace, name)


@lru_cache(maxsize=20_000)
def job_id(namespace: str, name: str) -> int:
    """The id of a job."""
    return _pair(Kind.JOB, namespace, name)


@lru_cache(maxsize=20_000)
def field_id(text: str) -> int:
    """The id of a field's text, whichever datasets have it."""
    return _id(Kind.FIELD, text.encode())


@lru_cache(maxsize=20_000)
def column_id(name: int, field: int) -> int:
    """The id of a field of one dataset name; with WHOLE, of the dataset as a whole."""
    return _id(Kind.COLUMN, b"%d:%d" % (name, field))


def shortened(text: str) -> str:
    """The text, cut where it is longer than any name should be; different texts stay different."""
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}…{blake2b(text.encode(), digest_size=8).hexdigest()}"
