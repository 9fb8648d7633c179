"""Tables of the second data source API: Iceberg, Delta, JDBC catalogs, files, catalogs that nobody knows."""

from __future__ import annotations

import re
from typing import Any

from headwater.lineage.datasets import connectors as connections
from headwater.lineage.datasets.dataset import Found, lowered, place
from headwater.lineage.facets import dataset as facets
from headwater.lineage.naming.catalogs import Surroundings
from headwater.lineage.naming.names import DatasetId, TableName, path_id, table_symlink

__all__ = ["SESSION_CATALOG", "Tables", "V2Tables", "table_name"]


SESSION_CATALOG = "spark_catalog"


_HIVE_FORMATS = ("parquet", "orc", "avro", "sequencefile", "rcfile", "text")


def table_name(document: dict[str, Any], database: str = "default") -> TableName:
    """A TableIdentifier, or an Identifier of the second API, as NodeFields.java writes them; `database` is
    the default."""
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


_NOWHERE = {"NoopTable", "ConsoleTable", "ForeachWriterTable"}  # what is written there is nowhere afterwards


class V2Tables:
    """Datasets of DataSourceV2Relation and its kin, and of resolved names in any catalog."""

    def __init__(self, surroundings: Surroundings, tables: Tables) -> None:
        self._around = surroundings
        self._tables = tables

    def of_fields(self, fields: dict[str, Any]) -> list[Found]:
        """The fields of a relation, or of a resolved table: `table`, `catalog`, `identifier`, `options`."""
        table = fields.get("table")
        table = table if isinstance(table, dict) else {}
        if table.get("@") == "catalogTable":
            return self._tables.of_document(table)
        kind = str(table.get("cls", "")).rstrip("$").rpartition(".")[2].rpartition("$")[2]
        known = lowered(fields.get("options"), fields.get("extraOptions"))
        if kind in _NOWHERE:
            return []
        if "jdbc" in table:
            return self._jdbc(table["jdbc"], fields)
        if kind.startswith("Kafka"):
            return connections.kafka(known)
        if kind == "PythonTable":
            return connections.python_source(str(table.get("provider") or table.get("name")), known)
        if kind.startswith("Rate"):
            return [place(DatasetId("spark", "rate"))]
        if kind == "TextSocketTable":
            found = re.match(r"Socket\[(.*):(\d+)\]", str(table.get("name", "")))
            return connections.socket(
                known if known.get("host") else {"host": found[1], "port": found[2]} if found else {}
            )
        if kind.startswith("Memory"):
            return [
                place(DatasetId("spark", f"memory/{self._around.stream or known.get('queryname', 'stream')}"))
            ]
        if table.get("paths"):
            return [place(path_id(path), str(table.get("format", "")).lower()) for path in table["paths"]]
        return self._named(table, fields, known)

    def by_identifier(self, fields: dict[str, Any]) -> list[Found]:
        """A ResolvedIdentifier: a catalog and a name, of a table that is not looked at."""
        catalog = str((fields.get("catalog") or {}).get("name", ""))
        identifier = fields.get("identifier") or {}
        if catalog in ("", SESSION_CATALOG):
            return self._tables.by_name(
                {"database": ".".join(identifier.get("namespace") or ()), "table": identifier.get("name")}
            )
        return self._named({}, fields, {})

    def _jdbc(self, connection: dict[str, Any], fields: dict[str, Any]) -> list[Found]:
        identifier = fields.get("identifier")
        options = dict(connection.get("options") or {})
        if isinstance(identifier, dict):
            options = {k: v for k, v in options.items() if k.lower() not in ("dbtable", "query")}
            options["dbtable"] = ".".join([*(identifier.get("namespace") or ()), str(identifier.get("name"))])
        return connections.jdbc(str(connection.get("url", "")), options)

    def _named(self, table: dict[str, Any], fields: dict[str, Any], known: dict[str, str]) -> list[Found]:
        catalog = fields.get("catalog") or {}
        identifier = fields.get("identifier")
        properties = lowered(table.get("properties"))
        location = table.get("location") or properties.get("location") or known.get("path")
        name = table_name(identifier) if isinstance(identifier, dict) else None
        where = str(catalog.get("name", ""))
        lake = self._lake(table, properties, where)
        if name is None and not location:
            text = str(table.get("name") or "")
            return [place(DatasetId("spark", text))] if text else []
        if name is not None and not location and where in ("", SESSION_CATALOG):
            return self._tables.by_name({"database": name.database, "table": name.table})
        if name is not None:
            location = self._location(where, name, location)
        if location:
            found = place(path_id(str(location)))
            found.is_guess = not table.get("location")
            layer = lake or found.id.namespace.partition(":")[0]
            file_format = properties.get("write.format.default") or "parquet" if lake else None
            found.facets["storage"] = facets.storage(layer, file_format)
            if name is not None:
                self._add_names(found, name, where, lake)
        else:
            assert name is not None
            conf = self._around.catalog(where)
            if conf.get("url", "").startswith("jdbc:"):
                return connections.jdbc(conf["url"], {"dbtable": name.dotted})
            namespace = (
                conf.get("uri") or conf.get("url") or conf.get("warehouse") or f"catalog:{where or 'unknown'}"
            )
            found = place(DatasetId(namespace, name.dotted))
            found.is_guess = True
            found.facets["catalog"] = self._catalog(where, lake)
        if version := table.get("version"):
            found.facets["version"] = facets.version(str(version))
        if comment := properties.get("comment"):
            found.facets["documentation"] = facets.documentation(comment)
        if owner := properties.get("owner"):
            found.facets["ownership"] = facets.ownership(owner)
        return [found]

    def _location(self, catalog: str, name: TableName, told: Any) -> str:
        """Where a table of a catalog lies: as it says, as it said before, or where such a catalog puts it."""
        key = TableName("", f"{catalog}:{name.database}", name.table)
        if told:
            self._around.remember(key, {"location": str(told)})
            return str(told)
        known = self._around.remembered(key)
        if known is not None:
            return str(known["location"])
        conf = self._around.catalog(catalog)
        if conf.get("type") == "hadoop" and conf.get("warehouse"):
            return "/".join([conf["warehouse"].rstrip("/"), *name.database.split("."), name.table])
        return ""

    def _lake(self, table: dict[str, Any], properties: dict[str, str], catalog: str) -> str:
        cls = str(table.get("cls", "")) or self._around.catalog(catalog).get("", "")
        if (
            "iceberg" in cls
            or properties.get("provider") == "iceberg"
            or properties.get("format", "").startswith("iceberg")
        ):
            return "iceberg"
        return "delta" if "delta" in cls or properties.get("provider") == "delta" else ""

    def _add_names(self, found: Found, name: TableName, catalog: str, lake: str) -> None:
        conf = self._around.catalog(catalog)
        kind = conf.get("type", "")
        if catalog in ("", SESSION_CATALOG):
            self._tables.add_names(found, name)
            return
        if kind == "hive" or "hive" in conf.get("catalog-impl", "").lower():
            uri = conf.get("uri") or self._around.metastore_uris
            host = uri.split(",")[0].rpartition("://")[2] or "localhost:9083"
            found.add_symlink(DatasetId(f"hive://{host}", name.dotted))
        elif kind in ("rest", "nessie") and conf.get("uri"):
            found.add_symlink(DatasetId(conf["uri"], name.dotted))
        elif conf.get("warehouse"):
            home = path_id(conf["warehouse"])
            namespace = f"file:{home.name}" if home.namespace == "file" else "/".join(home)
            found.add_symlink(DatasetId(namespace, name.dotted))
        else:
            found.add_symlink(DatasetId(f"catalog:{catalog}", name.dotted))
        found.facets["catalog"] = self._catalog(catalog, lake)

    def _catalog(self, catalog: str, lake: str) -> dict[str, Any]:
        conf = self._around.catalog(catalog)
        cls = conf.get("", "").rpartition(".")[2]
        return facets.catalog(
            lake or "spark",
            conf.get("type") or cls or "unknown",
            catalog or "unknown",
            metadata_uri=conf.get("uri") or conf.get("url"),
            warehouse_uri=conf.get("warehouse"),
        )
