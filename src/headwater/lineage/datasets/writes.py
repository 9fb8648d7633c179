"""Outputs of commands that write rows: inserts, saves, CREATE TABLE AS SELECT, row-level changes, streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.lineage.datasets import connectors
from headwater.lineage.datasets.connectors import options_lower_case
from headwater.lineage.datasets.reads import Sources
from headwater.lineage.extend.builders import DatasetBuilder, OutputDatasetBuilder, QueryPlanVisitor
from headwater.lineage.facets import dataset as facets
from headwater.lineage.facets.dataset import file_dataset, unknown_dataset
from headwater.lineage.jvm.plan import Attribute, Node
from headwater.lineage.naming.names import path_id

if TYPE_CHECKING:
    from headwater.lineage.datasets.plan_visits import CurrentQuery

Fields = dict[str, Any]


class Writes(QueryPlanVisitor[OutputDatasetBuilder]):
    """All commands of Spark that write rows; the table `WRITES` has a method for each."""

    def __init__(self, sources: Sources, query: CurrentQuery) -> None:
        self._sources = sources
        self._query = query

    def is_defined_at(self, node: Node) -> bool:
        return node.simple in WRITES or node.simple in DELTA

    def apply(self, node: Node) -> list[OutputDatasetBuilder]:
        fields = node.fields or {}
        if node.simple in DELTA:
            return [one.as_output(node) for one in self.write_to_delta(node)]
        rule, state = WRITES[node.simple]
        made = []
        for one in rule(self, fields):
            output = one.as_output(node)
            if change := state(fields):
                output.facets["lifecycleStateChange"] = facets.lifecycle(change)
            if columns := self._columns(node, fields):
                output.facets["schema"] = columns
            is_ignored = str(fields.get("mode", "")).lower() == "ignore"
            output.only_if_written = is_ignored and rule is Writes.write_to_table
            made.append(output)
        return made

    def _columns(self, node: Node, fields: Fields) -> dict[str, Any] | None:
        """The table's columns if the command has them, else the query's under the names that it writes."""
        for key in ("table", "originalTable", "catalogTable", "tableDesc"):
            nested = fields.get(key)
            if isinstance(nested, dict) and nested.get("out"):
                return facets.schema([Attribute(*column) for column in nested["out"]])
            struct = nested.get("schema") if isinstance(nested, dict) else None
            if isinstance(struct, dict) and struct.get("fields"):
                return facets.schema_of_struct(struct)
        plan = self._query.plan
        if plan is None:
            return None
        query = next((kid for kid in plan.children(node) if kid.out), None)
        return facets.schema(query.out, fields.get("outputColumnNames")) if query is not None else None

    # --- one method for each family of commands

    def write_to_path(self, fields: Fields) -> list[DatasetBuilder]:
        table, path = fields.get("catalogTable"), str(fields.get("outputPath", ""))
        if isinstance(table, dict):
            found = self._sources.tables.of_document(table)
            for one in found:  # a table that the catalog does not know yet has the command's path
                if one.location_is_default and path:
                    one.id, one.location_is_default = path_id(path), False
            return found
        return [file_dataset(path, _format(fields.get("fileFormat")))]

    def write_to_table(self, fields: Fields) -> list[DatasetBuilder]:
        document = fields.get("table") or fields.get("tableDesc")
        return self._sources.datasets_of_field(document)

    def write_to_folder(self, fields: Fields) -> list[DatasetBuilder]:
        inside = (fields.get("storage") or {}).get("f") or {}
        location = inside.get("locationUri") or (inside.get("properties") or {}).get("path")
        kind = str(fields.get("provider") or "")
        return [file_dataset(str(location), kind)] if location else []

    def write_to_relation(self, fields: Fields) -> list[DatasetBuilder]:
        return self._sources.datasets_of_field(fields.get("logicalRelation"))

    def write_to_source(self, fields: Fields) -> list[DatasetBuilder]:
        """`df.write.format(…).save()` of the V1 API: only its options say what it writes to."""
        source = fields.get("dataSource") or {}
        cls, known = str(source.get("cls", "")), options_lower_case(fields.get("options"))
        name = str(source.get("name") or cls.rpartition(".")[2])
        if known.get("url", "").startswith("jdbc:"):
            return self._sources.catalogs.jdbc(known["url"], known)
        if "kafka" in cls.lower():
            return connectors.kafka(known) or self._topic_by_row(known)
        if known.get("path"):
            found = file_dataset(known["path"], "" if "delta" in cls.lower() else name)
            if "delta" in cls.lower():
                found.facets["storage"] = facets.storage("delta", "parquet")
            return [found]
        if "noop" in name:
            return []
        return (
            connectors.python_source(name, known)
            if "Python" in cls
            else [unknown_dataset(f"the dataset that the data source {name} writes is not known")]
        )

    def _topic_by_row(self, known: dict[str, str]) -> list[DatasetBuilder]:
        """Without the option `topic` each row has its own; a literal that all rows share is the topic."""
        plan = self._query.plan
        top = plan.top if plan is not None else None
        written = {
            column.id
            for node in (plan.children(top) if plan is not None and top is not None else ())
            for column in node.out
            if column.name.lower() == "topic"
        }
        for node in plan.nodes if plan is not None else ():
            for expression in node.expressions("projectList"):
                if expression and expression[0] == "=" and expression[1] in written:
                    value = expression[3]
                    if value[0] == "l" and len(value) > 1 and isinstance(value[1], str):
                        return connectors.kafka({**known, "topic": value[1]})
        return [unknown_dataset("each row has its own Kafka topic, which the plan does not contain")]

    def write_to_v2(self, fields: Fields) -> list[DatasetBuilder]:
        document = fields.get("originalTable") or fields.get("table") or fields.get("targetTable")
        return self._sources.datasets_of_field(document)

    def write_to_delta(self, node: Node) -> list[DatasetBuilder]:
        """Delta's own commands, which change the last plan that they hold."""
        plan = self._query.plan
        last = [*node.kids, *node.inner][-1:]
        if plan is None or not last:
            return []
        for number in sorted(plan.below(last[0])):
            leaf = plan.nodes[number]
            if found := self._sources.datasets_of_relation(leaf.simple, leaf.fields or {}):
                return found
        return []

    def write_to_name(self, fields: Fields) -> list[DatasetBuilder]:
        return self._sources.datasets_of_field(fields.get("name"))

    def write_to_sink(self, fields: Fields) -> list[DatasetBuilder]:
        """A micro-batch of the V1 API."""
        if isinstance(fields.get("catalogTable"), dict):
            return self._sources.tables.of_document(fields["catalogTable"])
        sink = fields.get("sink") or {}
        kind = str(sink.get("cls", "")).rpartition(".")[2]
        inside, known = sink.get("f") or {}, options_lower_case(fields.get("writeOptions"))
        if kind == "FileStreamSink":
            path = inside.get("path") or known.get("path")
            return [file_dataset(str(path), _format(inside.get("fileFormat")))] if path else []
        if kind == "KafkaSink":
            return connectors.kafka(known, inside) or self._topic_by_row(known)
        if kind.startswith("Delta") and (inside.get("path") or known.get("path")):
            found = file_dataset(str(inside.get("path") or known["path"]))
            found.facets["storage"] = facets.storage("delta", "parquet")
            return [found]
        return []  # foreachBatch: the commands in it are executions themselves

    def write_to_v2_sink(self, fields: Fields) -> list[DatasetBuilder]:
        """A micro-batch of the V2 API."""
        relation = fields.get("relation")
        if isinstance(relation, dict) and relation.get("@") == "node":
            return self._sources.datasets_of_field(relation)
        known = options_lower_case(fields.get("writeOptions"))
        if str((fields.get("table") or {}).get("cls", "")).rpartition(".")[2].startswith("Kafka"):
            return connectors.kafka(known) or self._topic_by_row(known)
        return self._sources.v2.of_fields({"table": fields.get("table"), "options": known})

    def write_to_view(self, fields: Fields) -> list[DatasetBuilder]:
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
        or re.sub(r"(FileFormat|\$)+\Z", "", str(document.get("cls", "")).rpartition(".")[2])
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

Rule = tuple[Callable[[Writes, Fields], list[DatasetBuilder]], Callable[[Fields], str]]
WRITES: dict[str, Rule] = {
    "InsertIntoHadoopFsRelationCommand": (Writes.write_to_path, _by_mode),
    "InsertIntoHiveTable": (Writes.write_to_table, _by_flag),
    "InsertIntoDataSourceCommand": (Writes.write_to_relation, _by_flag),
    "InsertIntoDataSourceDirCommand": (Writes.write_to_folder, _by_flag),
    "InsertIntoHiveDirCommand": (Writes.write_to_folder, _by_flag),
    "InsertIntoDir": (Writes.write_to_folder, _by_flag),
    "SaveIntoDataSourceCommand": (Writes.write_to_source, _by_mode),
    "SaveAsV1TableCommand": (Writes.write_to_table, _new_table),
    "CreateDataSourceTableAsSelectCommand": (Writes.write_to_table, _new_table),
    "CreateHiveTableAsSelectCommand": (Writes.write_to_table, _new_table),
    "OptimizedCreateHiveTableAsSelectCommand": (Writes.write_to_table, _new_table),
    "CreateTableAsSelect": (Writes.write_to_name, _always("CREATE")),
    "ReplaceTableAsSelect": (Writes.write_to_name, _always("OVERWRITE")),
    "AppendData": (Writes.write_to_v2, _none),
    "InsertOnlyMerge": (Writes.write_to_v2, _none),
    "OverwriteByExpression": (Writes.write_to_v2, _always("OVERWRITE")),
    "OverwritePartitionsDynamic": (Writes.write_to_v2, _always("OVERWRITE")),
    "ReplaceData": (Writes.write_to_v2, _none),
    "WriteDelta": (Writes.write_to_v2, _none),
    "MergeIntoTable": (Writes.write_to_v2, _none),
    "UpdateTable": (Writes.write_to_v2, _none),
    "DeleteFromTable": (Writes.write_to_v2, _none),
    "DeleteFromTableWithFilters": (Writes.write_to_v2, _none),
    "CreateViewCommand": (Writes.write_to_view, _always("CREATE")),
    "WriteToMicroBatchDataSourceV1": (Writes.write_to_sink, _none),
    "WriteToMicroBatchDataSource": (Writes.write_to_v2_sink, _none),
    "WriteToDataSourceV2": (Writes.write_to_v2_sink, _none),
}
