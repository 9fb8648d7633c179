"""Outputs of commands that change a table's life and not its rows; all tell `lifecycleStateChange`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.lineage.datasets.catalogs import SESSION_CATALOG, table_name
from headwater.lineage.datasets.dataset import Found, place
from headwater.lineage.datasets.relations import Sources
from headwater.lineage.extend.builders import OutputDatasetBuilder, QueryPlanVisitor
from headwater.lineage.facets import dataset as facets
from headwater.lineage.jvm.plan import Node, Plan
from headwater.lineage.naming.names import DatasetId, path_id

if TYPE_CHECKING:
    from headwater.lineage.extend.context import OpenLineageContext

__all__ = ["Changes", "is_change"]

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
    "NONE": ("DropNamespace", "DropDatabaseCommand"),
}
# Facets of what is in a table, as opposed to what it is called.
_OF_CONTENT = {"schema", "ownership", "documentation", "storage", "version"}
_STATE_OF = {name: state for state, names in _STATES.items() for name in names}


class Changes(QueryPlanVisitor[OutputDatasetBuilder]):
    """CREATE, DROP, ALTER, TRUNCATE and RENAME of tables and views, and LOAD DATA."""

    node_classes = frozenset(_STATE_OF)

    def __init__(self, sources: Sources, context: OpenLineageContext) -> None:
        self._sources = sources
        self._context = context

    def apply(self, node: Node) -> list[OutputDatasetBuilder]:
        fields = node.fields or {}
        state = _STATE_OF[node.simple]
        if state == "RENAME":
            return self._renamed(node, fields)
        if state == "NONE":
            self._forget(fields)
            return []
        if node.simple == "LoadDataCommand" and fields.get("isOverwrite") is True:
            state = "OVERWRITE"
        made = []
        for one in self._table(fields, _is_view(node, fields)):
            told = dict(one.facets)
            if state:
                told["lifecycleStateChange"] = facets.lifecycle(state)
            if state == "DROP" or (state in ("ALTER", "TRUNCATE", "") and not self._context.is_end):
                # gone, or not yet what it will be
                told = {key: facet for key, facet in told.items() if key not in _OF_CONTENT}
            made.append(OutputDatasetBuilder(*one.id, told, is_guess=one.is_guess))
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

    def _forget(self, fields: Fields) -> None:
        """Tables that go with their database are not told one by one: the command does not name them."""
        inside = (
            (fields.get("namespace") or fields.get("child") or {}) if "databaseName" not in fields else {}
        )
        parts = (inside.get("f") or {}).get("namespace") if isinstance(inside, dict) else None
        name = fields.get("databaseName") or (parts[-1] if parts else "")
        self._sources.around.forget_database(str(name))

    def _renamed(self, node: Node, fields: Fields) -> list[OutputDatasetBuilder]:
        """The table under its new name; the old one is told as the previous identifier."""
        is_view = fields.get("isView") is True
        new = fields.get("newName")
        old_document = _as_id(next((fields[key] for key in ("oldName", "child") if key in fields), {}))
        if isinstance(new, list):  # the second API: the parts of a name, perhaps with the catalog's
            new = new[1:] if len(new) > 2 and new[0] == old_document.get("catalog") else new
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
                *one.id, {**one.facets, "lifecycleStateChange": facets.lifecycle("RENAME", previous)}
            )
            for one in after
        ]

    def _moved(self, old: Fields, new: Fields) -> tuple[list[Found], list[Found]]:
        """A managed table moves with its name; one with a place of its own stays where it is."""
        around, tables = self._sources.around, self._sources.tables
        before, after = (table_name(each, around.database) for each in (old, new))
        known = around.table(after) or around.table(before) or around.remembered(before) or {}
        place_of_old = around.default_location(before)
        location = str(known.get("location") or place_of_old)
        places = (place_of_old, around.default_location(after))
        if path_id(location) not in [path_id(each) for each in places if each]:
            # Same place under both names: what was renamed is the entry in the catalog.
            found = place(path_id(location), str(known.get("provider") or ""))
            tables.add_names(found, after)
            entry = place(path_id(location))
            tables.add_names(entry, before)
            names = entry.facets.get("symlinks", {}).get("identifiers", ())
            previous = DatasetId(names[0]["namespace"], names[0]["name"]) if names else entry.id
            return [Found(previous)], [found]
        found = place(path_id(places[1] or after.dotted), str(known.get("provider") or ""))
        tables.add_names(found, after)
        return [Found(path_id(place_of_old or before.dotted))], [found]


def is_change(plan: Plan | None) -> bool:
    """Whether the plan is a command after which a table is there still, but otherwise."""
    top = plan.top if plan is not None else None
    return top is not None and _STATE_OF.get(top.simple, "DROP") not in ("CREATE", "DROP", "NONE")


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
