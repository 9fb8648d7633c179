"""Tables of the second data source API: Iceberg, Delta, JDBC catalogs, files, catalogs that nobody knows."""

from __future__ import annotations

import re
from typing import Any

from headwater.lineage.datasets import connections
from headwater.lineage.datasets.found import Found, lowered, place
from headwater.lineage.datasets.tables import SESSION_CATALOG, Tables, table_name
from headwater.lineage.facets import dataset as facets
from headwater.lineage.naming.rules import DatasetId, TableName, path_id
from headwater.lineage.naming.surroundings import Surroundings

__all__ = ["V2Tables"]

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
