"""Outputs of commands that change a table's life and not its rows; all tell `lifecycleStateChange`."""

from __future__ import annotations

from typing import Any

from headwater.lineage.dataset_builders import OutputDatasetBuilder
from headwater.lineage.datasets.found import Found
from headwater.lineage.datasets.sources import Sources
from headwater.lineage.datasets.tables import SESSION_CATALOG
from headwater.lineage.extend import QueryPlanVisitor
from headwater.lineage.facets import dataset as facets
from headwater.lineage.naming import DatasetId
from headwater.lineage.plan import Node

__all__ = ["Changes"]

Fields = dict[str, Any]

# Where each command has its table, under which names of Spark's own, is found by trying these.
_TABLE_KEYS = ("table", "tableDesc", "targetTable", "tableName", "tableIdent", "name", "child", "oldName")

_STATES = {
    "CREATE": (
        "CreateDataSourceTableCommand",
        "CreateTableCommand",
        "CreateTableLikeCommand",
        "CreateTable",
        "CreateTableLike",
    ),
    "OVERWRITE": ("ReplaceTable",),
    "DROP": ("DropTableCommand", "DropTable", "DropView"),
    "TRUNCATE": ("TruncateTableCommand", "TruncateTable", "TruncatePartition"),
    "RENAME": ("AlterTableRenameCommand", "RenameTable"),
    "ALTER": (
        "AlterTableAddColumnsCommand",
        "AlterTableChangeColumnCommand",
        "AlterTableAddPartitionCommand",
        "AlterTableDropPartitionCommand",
        "AlterTableRenamePartitionCommand",
        "AlterTableSetLocationCommand",
        "AlterTableSetPropertiesCommand",
        "AlterTableUnsetPropertiesCommand",
        "AlterTableSerDePropertiesCommand",
        "AlterTableChangeColumnCommentsCommand",
        "AlterViewAsCommand",
        "RepairTableCommand",
        "RepairTable",
        "RecoverPartitions",
        "AddColumns",
        "ReplaceColumns",
        "DropColumns",
        "RenameColumn",
        "AlterColumn",
        "AlterColumns",
        "SetTableProperties",
        "UnsetTableProperties",
        "SetTableLocation",
        "AddPartitions",
        "DropPartitions",
        "RenamePartitions",
        "AlterTableClusterBy",
        "AlterTableCollation",
        "CommentOnTable",
        "AddConstraint",
        "DropConstraint",
        "AddCheckConstraint",
    ),
    "": ("LoadDataCommand",),
}
_STATE_OF = {name: state for state, names in _STATES.items() for name in names}


class Changes(QueryPlanVisitor[OutputDatasetBuilder]):
    """CREATE, DROP, ALTER, TRUNCATE and RENAME of tables and views, and LOAD DATA."""

    node_classes = frozenset(_STATE_OF)

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def apply(self, node: Node) -> list[OutputDatasetBuilder]:
        fields = node.fields or {}
        state = _STATE_OF[node.simple]
        if state == "RENAME":
            return self._renamed(node, fields)
        if node.simple == "LoadDataCommand" and fields.get("isOverwrite") is True:
            state = "OVERWRITE"
        made = []
        for one in self._table(fields, _is_view(node, fields)):
            told = dict(one.facets)
            if state:
                told["lifecycleStateChange"] = facets.lifecycle(state)
            made.append(OutputDatasetBuilder(*one.id, told, node=node.id, is_guess=one.is_guess))
        return made

    def _table(self, fields: Fields, is_view: bool) -> list[Found]:
        for key in _TABLE_KEYS:
            document = fields.get(key)
            if not isinstance(document, dict):
                continue
            if is_view:
                return self._sources.tables.view_by_name(_as_id(document))
            if found := self._sources.of_nested(document):
                return found
        return []

    def _renamed(self, node: Node, fields: Fields) -> list[OutputDatasetBuilder]:
        """The table under its new name; the old one is told as the previous identifier."""
        is_view = fields.get("isView") is True
        new = fields.get("newName")
        old_document = _as_id(next((fields[key] for key in ("oldName", "child") if key in fields), {}))
        if isinstance(new, list):  # the second API: the parts of a name
            new = {
                "@": "id",
                "catalog": old_document.get("catalog"),
                "database": ".".join(new[:-1]),
                "table": new[-1],
            }
        if not isinstance(new, dict):
            return []
        new = {**new, "database": new.get("database") or old_document.get("database")}
        other = old_document.get("catalog") not in (None, "", SESSION_CATALOG)
        if is_view:
            before, after = (
                self._sources.tables.view_by_name(old_document),
                self._sources.tables.view_by_name(new),
            )
        elif other:
            before, after = (
                self._sources.v2.by_identifier(_as_fields(old_document)),
                self._sources.v2.by_identifier(_as_fields(new)),
            )
        else:
            before, after = self._moved(old_document, new)
        previous: DatasetId | None = before[0].id if before else None
        return [
            OutputDatasetBuilder(
                *one.id,
                {**one.facets, "lifecycleStateChange": facets.lifecycle("RENAME", previous)},
                node=node.id,
            )
            for one in after
        ]

    def _moved(self, old: Fields, new: Fields) -> tuple[list[Found], list[Found]]:
        """A managed table moves with its name; one with a place of its own stays where it is."""
        after, before = self._sources.tables.by_name(new), self._sources.tables.by_name(old)
        if after and before and before[0].id == after[0].id:
            # Same place under both names: what was renamed is the entry in the catalog.
            names = [link["name"] for link in before[0].facets.get("symlinks", {}).get("identifiers", ())]
            return ([Found(DatasetId(before[0].id.namespace, names[0]))] if names else before), after
        return before, after


def _is_view(node: Node, fields: Fields) -> bool:
    return fields.get("isView") is True or node.simple in ("DropView", "AlterViewAsCommand")


def _as_id(document: Any) -> Fields:
    """A table's name from any of the shapes that hold one."""
    if not isinstance(document, dict):
        return {}
    if document.get("@") == "node":
        inside = document.get("f") or {}
        identifier = inside.get("identifier") or {}
        return {
            "@": "id",
            "catalog": (inside.get("catalog") or {}).get("name"),
            "database": ".".join(identifier.get("namespace") or ()),
            "table": identifier.get("name"),
        }
    if document.get("@") == "catalogTable":
        return dict(document["id"])
    return document


def _as_fields(document: Fields) -> Fields:
    namespace = [part for part in str(document.get("database") or "").split(".") if part]
    return {
        "catalog": {"name": document.get("catalog")},
        "identifier": {"@": "name", "namespace": namespace, "name": document.get("table")},
    }
