"""The fields of a batch, as a tree: which JSON types the values of each path have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any

import msgspec

MAX_DEPTH = 32
"""Objects below this depth stay JSON text."""
MAX_FIELDS = 20_000
"""Maximum distinct field paths per batch; further fields go to `_unmapped_data` (G8)."""

Path = tuple[str, ...]


class JsonTypes(IntFlag):
    """The JSON types of the values of a path, as Scan.java marks them."""

    BOOL = 1
    INT64 = 2
    FLOAT64 = 4
    STRING = 8
    TIMESTAMP = 16
    TOO_LARGE = 32
    """A number that neither a long nor a double holds exactly."""
    ARRAY = 64
    OBJECT = 128
    TOO_DEEP = 256
    FIELDS_OMITTED = 512
    FINE_TIMESTAMP = 1024
    """A timestamp with digits below the microsecond."""
    LARGE_INT64 = 2048
    """An integer that a double does not hold exactly."""
    BROKEN_TEXT = 4096
    """A text with half a surrogate pair, which UTF-8 cannot express."""
    REPEATED = 8192
    """An object has the key more than once."""


NO_TYPE = JsonTypes(0)
TEXT = JsonTypes.STRING | JsonTypes.TIMESTAMP
PLAIN = (
    JsonTypes.BOOL
    | JsonTypes.INT64
    | JsonTypes.FLOAT64
    | JsonTypes.TOO_LARGE
    | JsonTypes.ARRAY
    | JsonTypes.TOO_DEEP
)
VALUES = TEXT | PLAIN


@dataclass(frozen=True)
class Json:
    """A value of the event, by its path."""

    path: Path


@dataclass(frozen=True)
class Lookup:
    """A value that an enrichment rule found: number of the rule, path in its result."""

    rule: int
    path: Path


@dataclass(frozen=True)
class Constant:
    """A value of the mapping, as its JSON text (strings without their quotes)."""

    text: str


ValueSource = Json | Lookup | Constant


@dataclass
class Field:
    """A path of the batch: the JSON types found there, and the fields below it."""

    source: ValueSource
    json_types: JsonTypes = NO_TYPE
    children: dict[str, Field] = field(default_factory=dict)
    type: str = ""
    column_type: str = ""
    fallbacks: list[Field] = field(default_factory=list)
    """Fields that are used in events that lack this one."""
    count: int = 0
    """The number of its values in the batch."""

    @property
    def has_repeated_keys(self) -> bool:
        """Whether an event repeats a key, here or below."""
        return JsonTypes.REPEATED in self.json_types or any(
            child.has_repeated_keys for child in self.children.values()
        )

    def find(self, path: Sequence[str]) -> Field | None:
        """The field at a path below this one."""
        found: Field | None = self
        for part in path:
            found = found.children.get(part) if found else None
        return found


@dataclass
class BatchFields:
    """Counts of lines, and the tree of fields in the order of their first appearance."""

    events: int = 0
    malformed: int = 0
    blank: int = 0
    from_browser: int = 0
    skipped: int = 0
    root: Field = field(default_factory=lambda: Field(Json(())))

    @classmethod
    def merged(cls, answers: Iterable[str | bytes]) -> BatchFields:
        """Merges the answers of all partitions, in their order."""
        return cls.by_table(answers).get("") or cls()

    @classmethod
    def by_table(cls, answers: Iterable[str | bytes]) -> dict[str, BatchFields]:
        """Merges the answers per table; lines without a table are under the empty name.

        Files are merged in the order of their numbers.
        """
        found = sorted(map(msgspec.json.decode, answers), key=lambda answer: int(answer["file"]))
        return cls._merged(found)

    @classmethod
    def by_file(cls, answers: Iterable[str | bytes]) -> dict[int, dict[str, BatchFields]]:
        """Merges the answers per file and table."""
        files: dict[int, list[dict[str, Any]]] = {}
        for answer in map(msgspec.json.decode, answers):
            files.setdefault(answer["file"], []).append(answer)
        return {number: cls._merged(own) for number, own in files.items()}

    @classmethod
    def _merged(cls, answers: Iterable[dict[str, Any]]) -> dict[str, BatchFields]:
        tables: dict[str, BatchFields] = {}
        budgets: dict[str, list[int]] = {}
        for found in answers:
            table = found["table"]
            fields = tables.setdefault(table, cls())
            fields.events += found["events"]
            fields.malformed += found["malformed"]
            fields.blank += found["blank"]
            fields.from_browser += found["from_browser"]
            fields.skipped += found["skipped"]
            _merge(fields.root, found["tree"], (), budgets.setdefault(table, [MAX_FIELDS]))
        return tables


def _merge(target: Field, tree: Any, path: Path, budget: list[int]) -> None:
    target.json_types |= JsonTypes(tree[0])
    target.count += tree[2]
    for name, subtree in tree[1].items():
        child = target.children.get(name)
        if child is None:
            if not subtree[0]:
                continue  # only nulls, or only in lines that are not events
            if not budget[0]:
                target.json_types |= JsonTypes.FIELDS_OMITTED
                continue
            budget[0] -= 1
            child = target.children[name] = Field(Json((*path, name)))
        _merge(child, subtree, (*path, name), budget)


def parse_pointer(text: str) -> Path:
    """The parts of a JSON pointer (`~1` is `/`, `~0` is `~`); its leading slash is optional."""
    stripped = text.removeprefix("/")
    if not stripped:
        return ()
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in stripped.split("/"))


def pointer(path: Path) -> str:
    """A path as a JSON pointer."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
