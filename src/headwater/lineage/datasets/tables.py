"""Tables of Spark's own catalog, by what a plan tells of them or by their name alone; and files."""

from __future__ import annotations

from typing import Any

from headwater.lineage.datasets import connections
from headwater.lineage.datasets.found import Found, lowered, place
from headwater.lineage.facets import dataset as facets
from headwater.lineage.naming.rules import DatasetId, TableName, path_id, table_symlink
from headwater.lineage.naming.surroundings import Surroundings

__all__ = ["SESSION_CATALOG", "Tables", "table_name"]

SESSION_CATALOG = "spark_catalog"
_HIVE_FORMATS = ("parquet", "orc", "avro", "sequencefile", "rcfile", "text")


def table_name(document: dict[str, Any], database: str = "default") -> TableName:
    """A TableIdentifier, or an Identifier of the second API, as Fields.java writes them; in `database` where
    it names none."""
    if document.get("@") == "name":
        return TableName("", ".".join(document.get("namespace") or ()), str(document.get("name", "")))
    return TableName(
        str(document.get("catalog") or ""),
        str(document.get("database") or database),
        str(document.get("table", "")),
    )


def _format(table: dict[str, Any], provider: str) -> str:
    """Of a Hive table the format of its files, by the class that reads them."""
    if provider not in ("", "hive"):
        return provider
    reads = str(table.get("inputFormat") or "").lower()
    return next((name for name in _HIVE_FORMATS if name in reads), provider)


class Tables:
    """Names tables: first by where their data lies, then by their name in the catalog as a symlink."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings

    def of_document(self, table: dict[str, Any]) -> list[Found]:
        """A CatalogTable, as a plan or the catalog tells it."""
        name = table_name(table["id"], self._around.database)
        self._around.remember(name, table)
        if table.get("type") == "VIEW":
            return [self._view(name, table)]
        location, provider = table.get("location"), str(table.get("provider") or "")
        known = lowered(table.get("options"), table.get("properties"))
        if not location and provider.endswith("jdbc") and known.get("url"):
            found = connections.jdbc(known["url"], known)
        elif not location and provider.endswith("kafka"):
            found = connections.kafka(known)
        else:
            at = location or known.get("path") or self._around.default_location(name)
            one = place(path_id(at or name.dotted), _format(table, provider))
            if provider in ("delta", "iceberg"):
                one.facets["storage"] = facets.storage(provider, "parquet")
            one.is_guess = not location
            found = [one]
        for each in found:
            self.add_names(each, name)
            self._describe(each, table)
        return found

    def by_name(self, document: dict[str, Any]) -> list[Found]:
        """A table of which a command holds only the name."""
        name = table_name(document, self._around.database)
        known = self._around.table(name)
        if known is not None:
            return self.of_document(known)
        one = place(path_id(self._around.default_location(name) or name.dotted))
        one.is_guess = True
        self.add_names(one, name)
        return [one]

    def view_by_name(self, document: dict[str, Any]) -> list[Found]:
        """A view of which a command holds only the name."""
        return [self._view(table_name(document, self._around.database), {})]

    def add_names(self, found: Found, name: TableName) -> None:
        """The symlink and the catalog of a table in the session's catalog."""
        other = table_symlink(
            name,
            warehouse=self._around.warehouse,
            metastore_uris=self._around.metastore_uris,
            glue=self._around.glue,
        )
        if other is not None:
            found.add_symlink(other)
        found.facets["catalog"] = self._catalog()

    def _view(self, name: TableName, table: dict[str, Any]) -> Found:
        """A view lies nowhere: its name in the catalog is its name."""
        id = table_symlink(
            name,
            warehouse=self._around.warehouse,
            metastore_uris=self._around.metastore_uris,
            glue=self._around.glue,
        )
        one = place(id or DatasetId(f"catalog:{SESSION_CATALOG}", name.dotted))
        one.facets |= {"datasetType": facets.dataset_type("VIEW"), "catalog": self._catalog()}
        self._describe(one, table)
        return one

    def _describe(self, found: Found, table: dict[str, Any]) -> None:
        if comment := table.get("comment"):
            found.facets["documentation"] = facets.documentation(str(comment))
        if owner := table.get("owner"):
            found.facets["ownership"] = facets.ownership(str(owner))
        struct = table.get("schema")
        if isinstance(struct, dict) and struct.get("fields"):
            found.facets["schema"] = facets.schema_of_struct(struct)

    def _catalog(self) -> dict[str, Any]:
        is_hive = self._around.conf.get("spark.sql.catalogImplementation") == "hive"
        return facets.catalog(
            "hive" if is_hive else "spark",
            "hive" if is_hive else "in-memory",
            SESSION_CATALOG,
            metadata_uri=self._around.metastore_uris,
            warehouse_uri=self._around.warehouse,
        )
