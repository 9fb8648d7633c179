"""Leaves of plans and chains of RDDs become datasets: files, tables, streams, frames made of RDDs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from headwater.lineage.datasets import connectors
from headwater.lineage.datasets.catalogs import Catalogs, SessionTables, V2Tables, table_name
from headwater.lineage.datasets.connectors import options_lower_case
from headwater.lineage.datasets.query_history import QueryHistory
from headwater.lineage.extend.builders import (
    AbstractInputDatasetBuilder,
    AbstractOutputDatasetBuilder,
    DatasetBuilder,
    InputDatasetBuilder,
    OutputDatasetBuilder,
    QueryPlanVisitor,
)
from headwater.lineage.extend.spark_objects import (
    JDBCRDD,
    RDD,
    ActiveJob,
    FileScanRDD,
    HadoopRDD,
    NewHadoopRDD,
)
from headwater.lineage.facets import dataset as facets
from headwater.lineage.facets.dataset import file_dataset, unknown_dataset
from headwater.lineage.jvm.plan import Attribute, Node
from headwater.lineage.naming.names import DatasetId, folder_of_glob, path_id

Fields = dict[str, Any]
MAX_PATHS = 100  # of one relation; more paths are reported as their common folder
_ABSOLUTE = re.compile(r"^([A-Za-z][\w+.-]*:)?/")
_NAMES_ONLY = {"ResolvedTable", "ResolvedIdentifier", "ResolvedPersistentView"}
_RDD_FRAMES = {"LogicalRDD", "ExternalRDD"}
# Iceberg adds these columns to the rows of commands that change them.
_ROW_COLUMNS = {"_file", "_pos", "_spec_id", "_partition", "_deleted"}
_HADOOP_FORMATS = {
    "TextInputFormat": "text",
    "TextOutputFormat": "text",
    "WholeTextFileInputFormat": "text",
    "SequenceFileInputFormat": "sequencefile",
    "SequenceFileOutputFormat": "sequencefile",
}


class Sources:
    """Datasets of relations, by the simple name of their class and their fields in the plan document."""

    def __init__(self, catalogs: Catalogs) -> None:
        self.catalogs = catalogs
        self.tables = SessionTables(catalogs)
        self.v2 = V2Tables(catalogs, self.tables)

    def datasets_of_relation(self, simple: str, fields: Fields) -> list[DatasetBuilder] | None:
        """The datasets of a relation; None if its class is unknown."""
        rule = RELATIONS.get(simple)
        return rule(self, fields) if rule is not None else None

    def datasets_of_field(self, document: Any) -> list[DatasetBuilder]:
        """The datasets of a relation, table or name in a field of a command."""
        if not isinstance(document, dict):
            return []
        if document.get("@") == "catalogTable":
            return self.tables.of_document(document)
        if document.get("@") == "id":
            return self.tables.by_name(document)
        simple = str(document.get("cls", "")).rpartition(".")[2]
        return self.datasets_of_relation(simple, document.get("f") or {}) or []

    def logical_relation(self, fields: Fields, columns: Sequence[str] = ()) -> list[DatasetBuilder]:
        relation = fields.get("relation") or {}
        table = fields.get("catalogTable")
        kind = relation.get("@")
        if kind == "jdbc":
            options = relation.get("options") or {}
            found = self.catalogs.jdbc(str(relation.get("url", "")), options, columns)
        elif kind == "kafka":
            inside = relation.get("f") or {}
            found = connectors.kafka(*(value for value in inside.values() if isinstance(value, dict)))
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
                self.tables.add_names(each, table_name(table["id"], self.catalogs.database))
        return found

    def files(self, relation: Fields, *, is_streaming: bool = False) -> list[DatasetBuilder]:
        """Files and folders. A glob is the folder above it; a stream of files is its watched folder."""
        paths = [str(path) for path in relation.get("paths") or ()]
        if relation.get("folder"):
            paths = [str(relation["folder"])]  # of more paths than the document lists
        options = options_lower_case(relation.get("options"))
        file_format = str(relation.get("format", "")).lower()
        if "__globpaths__" in options and not is_streaming:
            return []  # Spark's own query that infers a schema
        base, given = options.get("basepath", ""), options.get("path", "")
        if base and all(_is_under(path, base) for path in paths):
            paths = [base]
        elif given and folder_of_glob(given) != given:
            paths = [_absolute(folder_of_glob(given))]
        elif is_streaming and "__globpaths__" in options:
            paths = [path.rpartition("/")[0] or "/" for path in paths]
        elif len(paths) > MAX_PATHS:
            paths = [_common(paths)]
        found = [file_dataset(path, file_format) for path in dict.fromkeys(paths)]
        for each in found:
            self._lake(each, relation)
        return found

    def _lake(self, found: DatasetBuilder, relation: Fields) -> None:
        if str(relation.get("index", "")).startswith("Tahoe"):
            found.facets["storage"] = facets.storage("delta", str(relation.get("format") or "parquet"))
        if relation.get("version"):
            found.plan_version = str(relation["version"])
            found.facets["version"] = facets.version(found.plan_version)

    def _unknown(self, relation: Fields) -> list[DatasetBuilder]:
        """A relation of an unknown class: by a path or URL in its fields, else reported as unknown."""
        inside = relation.get("f") or {}
        known = options_lower_case(*(value for value in inside.values() if isinstance(value, dict)), inside)
        if known.get("url", "").startswith("jdbc:"):
            return self.catalogs.jdbc(known["url"], known)
        if _ABSOLUTE.match(known.get("path", "")):
            return [file_dataset(known["path"])]
        cls = str(relation.get("cls", ""))
        return [unknown_dataset(f"the dataset of a relation of class {cls} is not known")] if cls else []

    def hive(self, fields: Fields) -> list[DatasetBuilder]:
        table = fields.get("tableMeta")
        return self.tables.of_document(table) if isinstance(table, dict) else []

    def scan(self, fields: Fields) -> list[DatasetBuilder]:
        nested = fields.get("relation")
        if isinstance(nested, dict) and nested.get("@") == "node":
            return self.datasets_of_field(nested)
        return self.v2.of_fields(fields)

    def stream(self, fields: Fields) -> list[DatasetBuilder]:
        """A streaming source before its first batch, or of the V2 API."""
        source = fields.get("dataSource")
        if isinstance(source, dict):  # StreamingRelation: the V1 API, before a batch is planned
            inside = source.get("f") or {}
            known = options_lower_case(inside.get("options"))
            if isinstance(inside.get("catalogTable"), dict):
                return self.tables.of_document(inside["catalogTable"])
            if known.get("path"):
                path = _absolute(folder_of_glob(known["path"]))
                return [file_dataset(path, str(inside.get("className", "")).lower())]
            return []
        return self.v2.of_fields(fields)

    def rdd(self, fields: Fields) -> list[DatasetBuilder]:
        chain = fields.get("rdd")
        return _datasets_of_chain(chain) if isinstance(chain, list) else []


def _absolute(path: str) -> str:
    return path if _ABSOLUTE.match(path) else os.path.abspath(path)


def _is_under(path: str, base: str) -> bool:
    inner, outer = path_id(path), path_id(base)
    return inner.namespace == outer.namespace and (inner.name + "/").startswith(outer.name.rstrip("/") + "/")


def _common(paths: list[str]) -> str:
    """The folder that contains all paths."""
    parts = [path.split("/") for path in (min(paths), max(paths))]
    same = takewhile(lambda pair: pair[0] == pair[1], zip(*parts, strict=False))
    return "/".join(part for part, _ in same) or "/"


RELATIONS: dict[str, Callable[[Sources, Fields], list[DatasetBuilder]]] = {
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


class RelationVisitor(QueryPlanVisitor[InputDatasetBuilder]):
    """Inputs of leaves: files, tables, databases, topics."""

    node_classes = frozenset(RELATIONS) - _NAMES_ONLY - _RDD_FRAMES

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def apply(self, node: Node) -> list[InputDatasetBuilder]:
        fields = node.fields or {}
        found: Sequence[DatasetBuilder] | None
        if RELATIONS[node.simple] is Sources.logical_relation:
            found = self._sources.logical_relation(fields, [column.name for column in node.out])
        else:
            found = self._sources.datasets_of_relation(node.simple, fields)
        return [_input(one, node) for one in found or ()]


class RddFrameVisitor(QueryPlanVisitor[InputDatasetBuilder]):
    """Inputs of a frame made of an RDD: of the query that made its columns, else of the RDDs."""

    node_classes = _RDD_FRAMES

    def __init__(self, sources: Sources, history: QueryHistory) -> None:
        self._sources = sources
        self._history = history

    def apply(self, node: Node) -> list[InputDatasetBuilder]:
        expr_ids = [column.id for column in node.out]
        if known := self._history.find(expr_ids):
            return [InputDatasetBuilder(*id, kept, expr_ids=expr_ids, node=node.id) for id, kept in known]
        found = self._sources.datasets_of_relation(node.simple, node.fields or {})
        return [one.as_input(node, node.out) for one in found or ()]


class LoadDataVisitor(QueryPlanVisitor[InputDatasetBuilder]):
    """The files of LOAD DATA, which has no relation for them."""

    node_classes = frozenset({"LoadDataCommand"})

    def apply(self, node: Node) -> list[InputDatasetBuilder]:
        path = (node.fields or {}).get("path")
        return [_input(file_dataset(str(path)), node)] if path else []


def _input(found: DatasetBuilder, node: Node) -> InputDatasetBuilder:
    made = found.as_input(node, node.out)
    columns = [column for column in node.out if column.name not in _ROW_COLUMNS]
    if found.query is not None:
        table, query = found.query  # its result has other columns than the table; only some are known
        kinds = {column.name: column.type for column in columns}
        columns = [
            Attribute(-1, origin.column, kinds.get(name))
            for name, origins in query.columns.items()
            for origin in origins
            if origin.table == table and origin.use == "IDENTITY"
        ]
    if columns:
        made.facets["schema"] = facets.schema({column.name: column for column in columns}.values())
    return made


# --- RDD programs


def _datasets_of_chain(chain: Iterable[Mapping[str, Any]]) -> list[DatasetBuilder]:
    """The datasets that the RDDs of a chain read, each once."""
    found: dict[DatasetId, DatasetBuilder] = {}
    for each in chain:
        kind = str(each.get("cls", "")).rpartition(".")[2]
        for one in _read_by_rdd(kind, each):
            found.setdefault(one.id, one)
    return list(found.values())


def _read_by_rdd(kind: str, rdd: Mapping[str, Any]) -> list[DatasetBuilder]:
    if kind == "JDBCRDD" and rdd.get("url"):
        return connectors.jdbc(str(rdd["url"]), {"dbtable": rdd.get("table", "")})
    return [file_dataset(folder_of_glob(str(path)), _hadoop_format(rdd)) for path in rdd.get("paths") or ()]


def _hadoop_format(described: Mapping[str, Any]) -> str:
    return _HADOOP_FORMATS.get(str(described.get("format", "")).rpartition(".")[2], "")


class RddInputs(AbstractInputDatasetBuilder[HadoopRDD | NewHadoopRDD | FileScanRDD | JDBCRDD]):
    """Inputs of RDD programs. RDDs that belong to a SQL query are skipped; its plan names the tables."""

    def is_defined_at(self, event: object) -> bool:
        return super().is_defined_at(event) and not (isinstance(event, RDD) and event.is_of_query)

    def apply(self, event: RDD) -> list[InputDatasetBuilder]:
        described = {"paths": event.paths, **event.details}
        kind = type(event).__name__
        return [one.as_input() for one in _read_by_rdd(kind, described)]


class JobOutputs(AbstractOutputDatasetBuilder[ActiveJob]):
    """Outputs of RDD programs: `saveAsTextFile` and other writes through Hadoop's API."""

    def apply(self, event: ActiveJob) -> list[OutputDatasetBuilder]:
        if event.execution_id is not None:
            return []
        return [
            file_dataset(str(each["path"]), _hadoop_format(each)).as_output()
            for each in event.outputs
            if each.get("path")
        ]
