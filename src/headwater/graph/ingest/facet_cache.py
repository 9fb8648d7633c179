"""Facets that were parsed before: most facets are repeated in every run, and then cost a hash (G8).

Everything in the cache has rows in the tables too. Removing rows, or rolling a batch back, must clear it.
"""

from __future__ import annotations

from collections.abc import Sequence

Edge = tuple[int, int, int, str, str, int]  # target, source, job, type, subtype, masking

# Each limit stands for about 10 MB at most.
MAX_IDS = 100_000
MAX_EDGES = 30_000
MAX_SCHEMA_BYTES = 10_000_000


class FacetCache:
    """Parsed facets and written ids; a part that grows too large is emptied as a whole."""

    def __init__(self) -> None:
        self.ids: set[int] = set()  # names, jobs, fields, columns that have rows
        self.schema_versions: set[tuple[int, bytes]] = set()  # names and schemas whose columns have rows
        self.schemas: dict[bytes, tuple[bytes, bytes]] = {}  # by the facet's hash: id and content
        self.edges: dict[tuple[int, int, bytes], list[tuple[Edge, int, str]]] = {}
        self._edges = self._schema_bytes = 0

    def keep_schema(self, facet_hash: bytes, schema: tuple[bytes, bytes]) -> None:
        """Remember the content of a `schema` facet."""
        self._schema_bytes += len(facet_hash) + len(schema[1]) + 200
        if self._schema_bytes > MAX_SCHEMA_BYTES:
            self.schemas.clear()
            self._schema_bytes = 0
        self.schemas[facet_hash] = schema

    def keep_edges(self, key: tuple[int, int, bytes], edges: Sequence[tuple[Edge, int, str]]) -> None:
        """Remember the edges of a `columnLineage` facet, with the name of the source and a description."""
        self._edges += len(edges) + 1
        if self._edges > MAX_EDGES:
            self._clear_edges()
        self.edges[key] = list(edges)

    def trim(self) -> None:
        """Forget ids where there are too many."""
        if len(self.ids) + len(self.schema_versions) > MAX_IDS:
            self.ids.clear()
            self.schema_versions.clear()
            self._clear_edges()  # cached edges come without columns, which need their rows once more

    def clear(self) -> None:
        """Forget everything."""
        self.ids.clear()
        self.schema_versions.clear()
        self.schemas.clear()
        self._schema_bytes = 0
        self._clear_edges()

    def _clear_edges(self) -> None:
        self.edges.clear()
        self._edges = 0
