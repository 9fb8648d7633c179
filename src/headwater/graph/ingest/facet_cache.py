"""Memory of the fold between batches: what facets were taken apart into, since most come again (G8).

All that is in it is in the tables too. So whoever removes rows, or rolls a batch back, must clear it.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Edge", "Memory"]

Edge = tuple[int, int, int, str, str, int]  # target, source, job, type, subtype, masking

# Each stands for some 10 MB at most.
MAX_IDS = 100_000
MAX_EDGES = 30_000
MAX_SCHEMA_BYTES = 10_000_000


class Memory:
    """What need not be written or taken apart again; forgotten as a whole when it grows too large."""

    def __init__(self) -> None:
        self.ids: set[int] = set()  # names, jobs, fields, columns that have their rows
        self.versions: set[tuple[int, bytes]] = set()  # names and schemas whose columns have their rows
        self.schemas: dict[bytes, tuple[bytes, bytes]] = {}  # by the facet: the schema's id and content
        self.edges: dict[tuple[int, int, bytes], list[tuple[Edge, int, str]]] = {}
        self._edges = self._schema_bytes = 0

    def keep_schema(self, words: bytes, schema: tuple[bytes, bytes]) -> None:
        """Remember what a `schema` facet says."""
        self._schema_bytes += len(words) + len(schema[1]) + 200
        if self._schema_bytes > MAX_SCHEMA_BYTES:
            self.schemas.clear()
            self._schema_bytes = 0
        self.schemas[words] = schema

    def keep_edges(self, key: tuple[int, int, bytes], edges: Sequence[tuple[Edge, int, str]]) -> None:
        """Remember what a `columnLineage` facet says: edges with their source's name and description."""
        self._edges += len(edges) + 1
        if self._edges > MAX_EDGES:
            self.edges.clear()
            self._edges = 0
        self.edges[key] = list(edges)

    def trim(self) -> None:
        """Forget ids where they have become too many."""
        if len(self.ids) + len(self.versions) > MAX_IDS:
            self.ids.clear()
            self.versions.clear()
            # edges are told without their columns, which need their rows once more
            self.edges.clear()
            self._edges = 0

    def clear(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc]
