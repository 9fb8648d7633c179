"""Outputs of commands that create, drop, alter, rename or truncate tables (`lifecycleStateChange`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.lineage.datasets.catalogs import SESSION_CATALOG, table_name
from headwater.lineage.datasets.reads import Sources
from headwater.lineage.extend.builders import DatasetBuilder, OutputDatasetBuilder, QueryPlanVisitor
from headwater.lineage.facets import dataset as facets
from headwater.lineage.facets.dataset import file_dataset
from headwater.lineage.jvm.plan import Node, Plan
from headwater.lineage.naming.names import DatasetId, path_id

if TYPE_CHECKING:
    from headwater.lineage.datasets.plan_visits import CurrentQuery

Fields = dict[str, Any]

# The fields in which commands hold their table; the first that is set is used.
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
# Facets of a table's content, as opposed to its name.
_OF_CONTENT = {"schema", "ownership", "documentation", "storage", "version"}
_STATE_OF = {name: state for state, names in _STATES.items() for name in names}


class DdlVisitor(QueryPlanVisitor[OutputDatasetBuilder]):
    """CREATE, DROP, ALTER, TRUNCATE and RENAME of tables and views, and LOAD DATA."""

    node_classes = frozenset(_STATE_OF)

    def __init__(self, sources: Sources, query: CurrentQuery) -> None:
        self._sources = sources
        self._query = query

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
            output = one.as_output()
            if (new := _new_location(node, fields)) is not None:
                output.id = new  # whether or not the catalog has the change already
            if state:
                output.facets["lifecycleStateChange"] = facets.lifecycle(state)
            if state == "DROP" or (state in ("ALTER", "TRUNCATE", "") and not self._query.is_end):
                # the content is dropped, or not changed yet
                output.facets = {key: one for key, one in output.facets.items() if key not in _OF_CONTENT}
            made.append(output)
        return made

    def _table(self, fields: Fields, is_view: bool) -> list[DatasetBuilder]:
        for key in _TABLE_KEYS:
            document = fields.get(key)
            if not isinstance(document, dict):
                continue
            if is_view:
                return self._sources.tables.view_by_name(_as_id(document))
            if found := self._sources.datasets_of_field(document):
                return found
        return []

    def _forget(self, fields: Fields) -> None:
        """Forget the tables of a dropped database; the command does not name them, so they are no outputs."""
        inside = (
            (fields.get("namespace") or fields.get("child") or {}) if "databaseName" not in fields else {}
        )
        parts = (inside.get("f") or {}).get("namespace") if isinstance(inside, dict) else None
        name = fields.get("databaseName") or (parts[-1] if parts else "")
        self._sources.catalogs.forget_database(str(name))

    def _renamed(self, node: Node, fields: Fields) -> list[OutputDatasetBuilder]:
        """The table under its new name, with the old one as the previous identifier."""
        is_view = fields.get("isView") is True
        new = fields.get("newName")
        old_document = _as_id(next((fields[key] for key in ("oldName", "child") if key in fields), {}))
        if isinstance(new, list):  # the V2 API: the parts of a name, which may begin with the catalog
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
        made = []
        for one in after:
            one.facets["lifecycleStateChange"] = facets.lifecycle("RENAME", previous)
            one.location_is_default = False
            made.append(one.as_output())
        return made

    def _moved(self, old: Fields, new: Fields) -> tuple[list[DatasetBuilder], list[DatasetBuilder]]:
        """A managed table moves with its name; an external one keeps its location."""
        catalogs, tables = self._sources.catalogs, self._sources.tables
        before, after = (table_name(each, catalogs.database) for each in (old, new))
        known = catalogs.table(after) or catalogs.table(before) or catalogs.remembered(before) or {}
        default_of_old = catalogs.default_location(before)
        location = str(known.get("location") or default_of_old)
        defaults = (default_of_old, catalogs.default_location(after))
        if path_id(location) not in [path_id(each) for each in defaults if each]:
            # The location is the same under both names: only the entry of the catalog is renamed.
            found = file_dataset(location, str(known.get("provider") or ""))
            tables.add_names(found, after)
            tables.describe(found, known)
            entry = file_dataset(location)
            tables.add_names(entry, before)
            names = entry.facets.get("symlinks", {}).get("identifiers", ())
            previous = DatasetId(names[0]["namespace"], names[0]["name"]) if names else entry.id
            return [DatasetBuilder(*previous)], [found]
        if not default_of_old or not defaults[1]:
            return tables.by_name(old), tables.by_name(new)
        found = file_dataset(defaults[1], str(known.get("provider") or ""))
        tables.add_names(found, after)
        tables.describe(found, known)
        return [file_dataset(default_of_old)], [found]


def changes_table(plan: Plan | None) -> bool:
    """Whether the plan is a command that changes an existing table."""
    top = plan.top if plan is not None else None
    return top is not None and _STATE_OF.get(top.simple, "DROP") not in ("CREATE", "DROP", "NONE")


def _new_location(node: Node, fields: Fields) -> DatasetId | None:
    """The name of a table after SET LOCATION; None for other commands and for the location of a partition."""
    if node.simple not in ("AlterTableSetLocationCommand", "SetTableLocation"):
        return None
    if any(fields.get(key) for key in ("partitionSpec", "partitionsSpec")):
        return None
    location = fields.get("location")
    return path_id(location) if isinstance(location, str) and location else None


def _is_view(node: Node, fields: Fields) -> bool:
    return fields.get("isView") is True or node.simple in ("DropView", "AlterViewAsCommand")


def _as_id(document: Any) -> Fields:
    """The table name in a field of any form."""
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
