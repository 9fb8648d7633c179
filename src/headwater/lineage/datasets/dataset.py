"""A dataset as one of the describers found it: its name and what is known of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from headwater.lineage.facets import dataset as facets
from headwater.lineage.naming.names import DatasetId

__all__ = ["Found", "above_glob", "lowered", "place"]

_GLOB = re.compile(r"[*?\[{]")


class Found(msgspec.Struct):
    """`is_guess`: the place is Spark's default, and a nested command may know it better."""

    id: DatasetId
    facets: dict[str, Any] = {}
    is_guess: bool = False

    def add_symlink(self, other: DatasetId, kind: str = "TABLE") -> None:
        """Another name of the same data; its own name is none."""
        if other == self.id:
            return
        known = self.facets.setdefault("symlinks", facets.symlinks(()))["identifiers"]
        entry = {"namespace": other.namespace, "name": other.name, "type": kind}
        if entry not in known:
            known.append(entry)


def place(id: DatasetId, file_format: str = "", extra: Mapping[str, Any] | None = None) -> Found:
    """A dataset that lies somewhere, with its source and its format."""
    found = Found(id, {"dataSource": facets.data_source(id.namespace)})
    if file_format:
        found.facets["storage"] = facets.storage(id.namespace.partition(":")[0], file_format)
    found.facets.update(extra or {})
    return found


def lowered(*maps: Any) -> dict[str, str]:
    """Options by lower-case name, as Spark takes them; the first that has one wins."""
    merged: dict[str, str] = {}
    for each in maps:
        items: Iterable[tuple[str, Any]] = each.items() if isinstance(each, Mapping) else ()
        for name, value in items:
            merged.setdefault(str(name).lower(), str(value))
    return merged


def above_glob(path: str) -> str:
    """The folder above the first part of a path that is a pattern; the path itself if none is."""
    parts = path.split("/")
    at = next((at for at, part in enumerate(parts) if _GLOB.search(part)), None)
    return path if at is None else "/".join(parts[:at]) or "/"
