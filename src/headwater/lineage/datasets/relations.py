"""What a relation of a plan stands for, whichever way the data goes: for what is read and what is written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from headwater.lineage.datasets import connectors as connections
from headwater.lineage.datasets.catalogs import Tables, V2Tables, table_name
from headwater.lineage.datasets.dataset import Found, above_glob, lowered, place
from headwater.lineage.datasets.rdds import datasets_of_chain
from headwater.lineage.facets import dataset as facets
from headwater.lineage.naming.catalogs import Surroundings
from headwater.lineage.naming.names import DatasetId, path_id

__all__ = ["RELATIONS", "Sources"]

Fields = dict[str, Any]
MOST_PATHS = 100  # datasets of one relation; beyond it is their common folder that is told


class Sources:
    """Relations by the simple name of their class and their fields (NodeFields.java)."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.around = surroundings
        self.tables = Tables(surroundings)
        self.v2 = V2Tables(surroundings, self.tables)

    def of(self, simple: str, fields: Fields) -> list[Found] | None:
        """The datasets of a relation; None if it is of no known kind."""
        rule = RELATIONS.get(simple)
        return rule(self, fields) if rule is not None else None

    def of_nested(self, document: Any) -> list[Found]:
        """The same for a relation in a field of a command."""
        if not isinstance(document, dict):
            return []
        if document.get("@") == "catalogTable":
            return self.tables.of_document(document)
        if document.get("@") == "id":
            return self.tables.by_name(document)
        simple = str(document.get("cls", "")).rpartition(".")[2]
        return self.of(simple, document.get("f") or {}) or []

    def logical_relation(self, fields: Fields) -> list[Found]:
        relation = fields.get("relation") or {}
        table = fields.get("catalogTable")
        kind = relation.get("@")
        if kind == "jdbc":
            found = connections.jdbc(str(relation.get("url", "")), relation.get("options") or {})
        elif kind == "kafka":
            inside = relation.get("f") or {}
            found = connections.kafka(*(value for value in inside.values() if isinstance(value, dict)))
        elif isinstance(table, dict):
            found = self.tables.of_document(table)
            for each in found:
                self._lake(each, relation)
            return found
        elif kind == "files":
            return self.files(relation, is_streaming=fields.get("isStreaming") is True)
        else:
            return self._unknown(relation)
        if isinstance(table, dict):
            for each in found:
                self.tables.add_names(each, table_name(table["id"], self.around.database))
        return found

    def files(self, relation: Fields, *, is_streaming: bool = False) -> list[Found]:
        """Files and folders. A glob is the folder above it; files of a stream, the folder that is watched."""
        paths = [str(path) for path in relation.get("paths") or ()]
        options = lowered(relation.get("options"))
        file_format = str(relation.get("format", "")).lower()
        if "__globpaths__" in options and not is_streaming:
            return []  # Spark looks at the first lines of files to find a schema: nobody's query
        base, given = options.get("basepath", ""), options.get("path", "")
        if base and all(_is_under(path, base) for path in paths):
            paths = [base]
        elif given and above_glob(given) != given:
            paths = [_absolute(above_glob(given))]
        elif is_streaming and "__globpaths__" in options:
            paths = [path.rpartition("/")[0] or "/" for path in paths]
        elif len(paths) > MOST_PATHS:
            paths = [_common(paths)]
        found = [place(path_id(path), file_format) for path in dict.fromkeys(paths)]
        for each in found:
            self._lake(each, relation)
        return found

    def _lake(self, found: Found, relation: Fields) -> None:
        if str(relation.get("index", "")).startswith("Tahoe"):
            found.facets["storage"] = facets.storage("delta", str(relation.get("format") or "parquet"))
        if relation.get("version"):
            found.facets["version"] = facets.version(str(relation["version"]))

    def _unknown(self, relation: Fields) -> list[Found]:
        """A relation of somebody's: by a path or URL among what it holds, else by its class."""
        inside = relation.get("f") or {}
        known = lowered(*(value for value in inside.values() if isinstance(value, dict)), inside)
        if known.get("url", "").startswith("jdbc:"):
            return connections.jdbc(known["url"], known)
        if re.match(r"^([A-Za-z][\w+.-]*:)?/", known.get("path", "")):
            return [place(path_id(known["path"]))]
        cls = str(relation.get("cls", ""))
        return [place(DatasetId("spark", cls))] if cls else []

    def hive(self, fields: Fields) -> list[Found]:
        table = fields.get("tableMeta")
        return self.tables.of_document(table) if isinstance(table, dict) else []

    def scan(self, fields: Fields) -> list[Found]:
        nested = fields.get("relation")
        if isinstance(nested, dict) and nested.get("@") == "node":
            return self.of_nested(nested)
        return self.v2.of_fields(fields)

    def stream(self, fields: Fields) -> list[Found]:
        """A streaming source before its first batch, or of the second API."""
        source = fields.get("dataSource")
        if isinstance(source, dict):  # StreamingRelation: the first API, before a batch is planned
            inside = source.get("f") or {}
            known = lowered(inside.get("options"))
            if isinstance(inside.get("catalogTable"), dict):
                return self.tables.of_document(inside["catalogTable"])
            if known.get("path"):
                path = known["path"]
                path = above_glob(path)
                return [place(path_id(_absolute(path)), str(inside.get("className", "")).lower())]
            return []
        return self.v2.of_fields(fields)

    def rdd(self, fields: Fields) -> list[Found]:
        chain = fields.get("rdd")
        return datasets_of_chain(chain) if isinstance(chain, list) else []


def _absolute(path: str) -> str:
    return path if re.match(r"^([A-Za-z][\w+.-]*:)?/", path) else os.path.abspath(path)


def _is_under(path: str, base: str) -> bool:
    inner, outer = path_id(path), path_id(base)
    return inner.namespace == outer.namespace and (inner.name + "/").startswith(outer.name.rstrip("/") + "/")


def _common(paths: list[str]) -> str:
    """The folder that all of them lie in."""
    parts = [path.split("/") for path in (min(paths), max(paths))]
    same = next((at for at, (one, other) in enumerate(zip(*parts, strict=False)) if one != other), 0)
    return "/".join(parts[0][:same]) or "/"


RELATIONS: dict[str, Callable[[Sources, Fields], list[Found]]] = {
    "LogicalRelation": Sources.logical_relation,
    "LogicalRelationWithTable": Sources.logical_relation,
    "HiveTableRelation": Sources.hive,
    "DataSourceV2Relation": Sources.scan,
    "DataSourceV2ScanRelation": Sources.scan,
    "StreamingRelationV2": Sources.stream,
    "StreamingDataSourceV2Relation": Sources.scan,
    "StreamingDataSourceV2ScanRelation": Sources.scan,
    "StreamingRelation": Sources.stream,
    "StreamingExecutionRelation": Sources.stream,
    "LogicalRDD": Sources.rdd,
    "ExternalRDD": Sources.rdd,
    "ResolvedTable": Sources.scan,
    "ResolvedIdentifier": lambda sources, fields: sources.v2.by_identifier(fields),
    "ResolvedPersistentView": lambda sources, fields: sources.v2.by_identifier(fields),
}
