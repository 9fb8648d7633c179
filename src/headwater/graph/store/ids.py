"""64-bit ids that are digests of names.

The same events give the same ids in any order, and writing an edge needs no lookup. The two lowest bits of an
id are its kind.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b

from headwater.text_cache import text_cache

MAX_TEXT = 2_000  # characters of a name; a longer name is cut and ends in its digest (G8)
WHOLE_DATASET = 0  # in place of a field


class Kind(IntEnum):
    """The kinds of ids."""

    DATASET = 0
    JOB = 1
    COLUMN = 2
    FIELD = 3


def kind_of(id: int) -> Kind:
    """The kind of an id."""
    return Kind(id & 3)


def _id(kind: Kind, text: bytes) -> int:
    digest = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
    return (digest >> 3 << 2) | kind  # positive in SQLite's 64 bits


def _pair(kind: Kind, namespace: str, name: str) -> int:
    first = shortened(namespace).encode()
    return _id(kind, b"%d:%b%b" % (len(first), first, shortened(name).encode()))


@text_cache(20_000)
def dataset_id(namespace: str, name: str) -> int:
    """The id of a name of a dataset; a dataset with aliases has several names."""
    return _pair(Kind.DATASET, namespace, name)


@text_cache(20_000)
def job_id(namespace: str, name: str) -> int:
    """The id of a job."""
    return _pair(Kind.JOB, namespace, name)


@text_cache(20_000)
def field_id(text: str) -> int:
    """The id of a field's name, the same in all datasets."""
    return _id(Kind.FIELD, shortened(text).encode())


@lru_cache(maxsize=20_000)
def column_id(name: int, field: int) -> int:
    """The id of a field of one dataset name; with WHOLE_DATASET, of the whole dataset."""
    return _id(Kind.COLUMN, b"%d:%d" % (name, field))


def shortened(text: str) -> str:
    """The text, cut to the longest name that is stored; different texts stay different."""
    if len(text) <= MAX_TEXT:
        return text
    digest = "…" + blake2b(text.encode(), digest_size=8).hexdigest()
    return text[: MAX_TEXT - len(digest)] + digest
