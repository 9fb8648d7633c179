"""Outputs of commands that write rows: inserts, saves, table-as-select, row-level changes, streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.lineage.datasets import connectors as connections
from headwater.lineage.datasets.dataset import Found, lowered, place
from headwater.lineage.datasets.relations import Sources
from headwater.lineage.extend.builders import OutputDatasetBuilder, QueryPlanVisitor
from headwater.lineage.facets import dataset as facets
from headwater.lineage.jvm.plan import Attribute, Node
from headwater.lineage.naming.names import DatasetId, path_id

if TYPE_CHECKING:
    from headwater.lineage.extend.context import OpenLineageContext

__all__ = ["DELTA", "WRITES", "Writes"]

Fields = dict[str, Any]


class Writes(QueryPlanVisitor[OutputDatasetBuilder]):
    """All commands of Spark that write rows; what each does is in the table at the end of the module."""

    def __init__(self, sources: Sources, context: OpenLineageContext) -> None:
        self._sources = sources
        self._context = context

    def is_defined_at(self, node: Node) -> bool:
        return node.simple in WRITES or node.simple in DELTA

    def apply(self, node: Node) -> list[OutputDatasetBuilder]:
        fields = node.fields or {}
        if node.simple in DELTA:
            return [
                OutputDatasetBuilder(*one.id, one.facets, node=node.id, is_guess=one.is_guess)
                for one in self.to_delta(node)
            ]
        rule, state = WRITES[node.simple]
        made = []
        for one in rule(self, fields):
            told = dict(one.facets)
            if change := state(fields):
                told["lifecycleStateChange"] = facets.lifecycle(change)
            if columns := self._columns(node, fields):
                told["schema"] = columns
            output = OutputDatasetBuilder(*one.id, told, node=node.id, is_guess=one.is_guess)
            output.is_conditional = (
                rule is Writes.to_table and str(fields.get("mode", "")).lower() == "ignore"
            )
            made.append(output)
        return made

    def _columns(self, node: Node, fields: Fields) -> dict[str, Any] | None:
        """The table's own columns if the command tells them, else the query's under the names written."""
        for key in ("table", "originalTable", "catalogTable", "tableDesc"):
            nested = fields.get(key)
            if isinstance(nested, dict) and nested.get("out"):
                return facets.schema([Attribute(*column) for column in nested["out"]])
            struct = nested.get("schema") if isinstance(nested, dict) else None
            if isinstance(struct, dict) and struct.get("fields"):
                return facets.schema_of_struct(struct)
        plan = self._context.plan
        if plan is None:
            return None
        query = next((kid for kid in plan.children(node) if kid.out), None)
        return facets.schema(query.out, fields.get("outputColumnNames")) if query is not None else None

    # ------------------------------------------------------------------ one method a family of commands

    def to_path(self, fields: Fields) -> list[Found]:
        table, path = fields.get("catalogTable"), str(fields.get("outputPath", ""))
        if isinstance(table, dict):
            found = self._sources.tables.of_document(table)
            for one in found:  # the path is the truth where the catalog does not tell one yet
                if one.is_guess and path:
                    one.id, one.is_guess = path_id(path), False
            return found
        return [place(path_id(path), _format(fields.get("fileFormat")))]

    def to_table(self, fields: Fields) -> list[Found]:
        document = fields.get("table") or fields.get("tableDesc")
        return self._sources.of_nested(document)

    def to_folder(self, fields: Fields) -> list[Found]:
        inside = (fields.get("storage") or {}).get("f") or {}
        location = inside.get("locationUri") or (inside.get("properties") or {}).get("path")
        kind = str(fields.get("provider") or "")
        return [place(path_id(str(location)), kind)] if location else []

    def to_relation(self, fields: Fields) -> list[Found]:
        return self._sources.of_nested(fields.get("logicalRelation"))

    def to_source(self, fields: Fields) -> list[Found]:
        """`df.write.format(…).save()` of the first API: what it is, only its options tell."""
        source = fields.get("dataSource") or {}
        cls, known = str(source.get("cls", "")), lowered(fields.get("options"))
        name = str(source.get("name") or cls.rpartition(".")[2])
        if known.get("url", "").startswith("jdbc:"):
            return connections.jdbc(known["url"], known)
        if "kafka" in cls.lower():
            return connections.kafka(known) or self._topic_by_row(known)
        if known.get("path"):
            found = place(path_id(known["path"]), "" if "delta" in cls.lower() else name)
            if "delta" in cls.lower():
                found.facets["storage"] = facets.storage("delta", "parquet")
            return [found]
        if "noop" in name:
            return []
        return (
            connections.python_source(name, known) if "Python" in cls else [place(DatasetId("spark", name))]
        )

    def _topic_by_row(self, known: dict[str, str]) -> list[Found]:
        """No topic is set, so each row names its own: one if all rows say the same in plain words."""
        plan = self._context.plan
        topics: set[str] = set()
        for node in plan.nodes if plan is not None else ():
            for expression in node.expressions("projectList"):
                if expression and expression[0] == "=" and str(expression[2]).lower() == "topic":
                    value = expression[3]
                    if value[0] == "l" and len(value) > 1 and isinstance(value[1], str):
                        topics.add(value[1])
        if len(topics) == 1:
            return connections.kafka({**known, "topic": topics.pop()})
        return connections.kafka({**known, "topic": "topic of each row"})

    def to_v2(self, fields: Fields) -> list[Found]:
        document = fields.get("originalTable") or fields.get("table") or fields.get("targetTable")
        return self._sources.of_nested(document)

    def to_delta(self, node: Node) -> list[Found]:
        """Delta's own commands: what they change is the last plan that they hold."""
        plan = self._context.plan
        last = [*node.kids, *node.inner][-1:]
        if plan is None or not last:
            return []
        for number in sorted(plan.below(last[0])):
            leaf = plan.nodes[number]
            if found := self._sources.of(leaf.simple, leaf.fields or {}):
                return found
        return []

    def to_name(self, fields: Fields) -> list[Found]:
        return self._sources.of_nested(fields.get("name"))

    def to_sink(self, fields: Fields) -> list[Found]:
        """A micro-batch of the first API."""
        if isinstance(fields.get("catalogTable"), dict):
            return self._sources.tables.of_document(fields["catalogTable"])
        sink = fields.get("sink") or {}
        kind = str(sink.get("cls", "")).rpartition(".")[2]
        inside, known = sink.get("f") or {}, lowered(fields.get("writeOptions"))
        if kind == "FileStreamSink":
            path = inside.get("path") or known.get("path")
            return [place(path_id(str(path)), _format(inside.get("fileFormat")))] if path else []
        if kind == "KafkaSink":
            return connections.kafka(known, inside) or self._topic_by_row(known)
        if kind.startswith("Delta") and (inside.get("path") or known.get("path")):
            found = place(path_id(str(inside.get("path") or known["path"])))
            found.facets["storage"] = facets.storage("delta", "parquet")
            return [found]
        return []  # foreachBatch: what it writes are commands of their own

    def to_v2_sink(self, fields: Fields) -> list[Found]:
        """A micro-batch of the second API."""
        relation = fields.get("relation")
        if isinstance(relation, dict) and relation.get("@") == "node":
            return self._sources.of_nested(relation)
        known = lowered(fields.get("writeOptions"))
        if str((fields.get("table") or {}).get("cls", "")).rpartition(".")[2].startswith("Kafka"):
            return connections.kafka(known) or self._topic_by_row(known)
        return self._sources.v2.of_fields({"table": fields.get("table"), "options": known})

    def to_view(self, fields: Fields) -> list[Found]:
        kind = str((fields.get("viewType") or {}).get("cls", ""))
        if not kind.endswith("PersistedView$"):
            return []
        found = self._sources.tables.view_by_name(fields.get("name") or {})
        if fields.get("comment"):
            found[0].facets["documentation"] = facets.documentation(str(fields["comment"]))
        return found


def _format(document: Any) -> str:
    if not isinstance(document, dict):
        return ""
    return str(
        document.get("name")
        or re.sub(r"(FileFormat|\$)+$", "", str(document.get("cls", "")).rpartition(".")[2])
    ).lower()


def _by_mode(fields: Fields) -> str:
    return "OVERWRITE" if str(fields.get("mode", "")).lower() == "overwrite" else ""


def _by_flag(fields: Fields) -> str:
    return "OVERWRITE" if fields.get("overwrite") is True else ""


def _new_table(fields: Fields) -> str:
    mode = str(fields.get("mode", "")).lower()
    return {"overwrite": "OVERWRITE", "append": ""}.get(mode, "CREATE")


def _always(state: str) -> Callable[[Fields], str]:
    return lambda fields: state


_none = _always("")

DELTA = {"MergeIntoCommand", "UpdateCommand", "DeleteCommand"}

Rule = tuple[Callable[[Writes, Fields], list[Found]], Callable[[Fields], str]]
WRITES: dict[str, Rule] = {
    "InsertIntoHadoopFsRelationCommand": (Writes.to_path, _by_mode),
    "InsertIntoHiveTable": (Writes.to_table, _by_flag),
    "InsertIntoDataSourceCommand": (Writes.to_relation, _by_flag),
    "InsertIntoDataSourceDirCommand": (Writes.to_folder, _by_flag),
    "InsertIntoHiveDirCommand": (Writes.to_folder, _by_flag),
    "InsertIntoDir": (Writes.to_folder, _by_flag),
    "SaveIntoDataSourceCommand": (Writes.to_source, _by_mode),
    "SaveAsV1TableCommand": (Writes.to_table, _new_table),
    "CreateDataSourceTableAsSelectCommand": (Writes.to_table, _new_table),
    "CreateHiveTableAsSelectCommand": (Writes.to_table, _new_table),
    "OptimizedCreateHiveTableAsSelectCommand": (Writes.to_table, _new_table),
    "CreateTableAsSelect": (Writes.to_name, _always("CREATE")),
    "ReplaceTableAsSelect": (Writes.to_name, _always("OVERWRITE")),
    "AppendData": (Writes.to_v2, _none),
    "InsertOnlyMerge": (Writes.to_v2, _none),
    "OverwriteByExpression": (Writes.to_v2, _always("OVERWRITE")),
    "OverwritePartitionsDynamic": (Writes.to_v2, _always("OVERWRITE")),
    "ReplaceData": (Writes.to_v2, _none),
    "WriteDelta": (Writes.to_v2, _none),
    "MergeIntoTable": (Writes.to_v2, _none),
    "UpdateTable": (Writes.to_v2, _none),
    "DeleteFromTable": (Writes.to_v2, _none),
    "DeleteFromTableWithFilters": (Writes.to_v2, _none),
    "CreateViewCommand": (Writes.to_view, _always("CREATE")),
    "WriteToMicroBatchDataSourceV1": (Writes.to_sink, _none),
    "WriteToMicroBatchDataSource": (Writes.to_v2_sink, _none),
    "WriteToDataSourceV2": (Writes.to_v2_sink, _none),
}
