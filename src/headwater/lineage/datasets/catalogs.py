"""Tables by catalog: the session catalog, and catalogs of the DataSource V2 API such as Iceberg and Delta."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from headwater.lineage.datasets import connectors
from headwater.lineage.datasets.connectors import options_lower_case
from headwater.lineage.extend.builders import DatasetBuilder
from headwater.lineage.extend.isolation import PerBuild
from headwater.lineage.facets import dataset as facets
from headwater.lineage.facets.dataset import add_symlink, dataset, file_dataset, unknown_dataset
from headwater.lineage.jvm.agent import Agent, session_settings, system_property
from headwater.lineage.naming.names import DatasetId, TableName, folder_namespace, table_symlink

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

SESSION_CATALOG = "spark_catalog"
MAX_TABLES = 10_000
_WAREHOUSE = "spark.sql.warehouse.dir"
_GLUE = "AWSGlueDataCatalogHiveClientFactory"
_HIVE_FORMATS = ("parquet", "orc", "avro", "sequencefile", "rcfile", "text")
_NO_DATASET = {"NoopTable", "ConsoleTable", "ForeachWriterTable"}  # nothing is stored there


class Catalogs:
    """The settings, catalogs and tables of one application.

    `read` returns the session's current settings, `lookup` a table of the shared catalog in the form of the
    plan document, `locate` the location of a database. All may call the JVM and may fail; none accesses a
    file system.
    """

    database = PerBuild(lambda: "default")
    """The current database of the session that runs the query."""
    session: PerBuild[Mapping[str, str]] = PerBuild(dict)
    """The settings that the session of the query has changed; another session may have other catalogs."""
    stream = PerBuild(lambda: "")
    """The name of the streaming query that the micro-batch belongs to."""

    def __init__(
        self,
        conf: Mapping[str, str],
        *,
        read: Callable[[], Mapping[str, str]] | None = None,
        lookup: Callable[[str, str], str] | None = None,
        locate: Callable[[str], str] | None = None,
    ) -> None:
        self._application_conf = dict(conf)  # updated in place
        self._read = read
        self._lookup = lookup
        self._locate = locate
        self._catalogs: dict[str, dict[str, str]] = {}
        self._tables: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()

    @classmethod
    def of(cls, context: SparkContext, agent: Agent | None) -> Catalogs:
        """The catalogs of a running application; tables are looked up by the agent."""
        conf = dict(context.getConf().getAll())
        try:
            conf |= session_settings(context)
        except Exception as error:  # no session yet: its settings are read at the first use of a catalog
            logger.debug("The session's settings are not known yet: %s", error)
        home = system_property(context, "derby.system.home")
        conf |= {"derby.system.home": home} if home else {}
        lookup, locate = (agent.lookup_table, agent.database_location) if agent is not None else (None, None)
        return cls(conf, read=lambda: session_settings(context), lookup=lookup, locate=locate)

    @property
    def conf(self) -> dict[str, str]:
        """The known settings of Spark, in the session of the query."""
        changed = self.session
        return {**self._application_conf, **changed} if changed else self._application_conf

    @property
    def warehouse(self) -> str:
        """The folder of managed tables; empty if it is not known, or only by a relative name."""
        if not _is_absolute(self.conf.get(_WAREHOUSE, "")) and self._read is not None:
            try:
                self._application_conf |= self._read()  # the session qualifies it
            except Exception as error:  # the session may be stopped
                logger.debug("The warehouse is not known: %s", error)
        found = self.conf.get(_WAREHOUSE, "")
        return found if _is_absolute(found) else ""

    @property
    def metastore_uris(self) -> str:
        """The addresses of a remote Hive metastore."""
        for key in (
            "spark.sql.hive.metastore.uris",
            "spark.hadoop.hive.metastore.uris",
            "hive.metastore.uris",
        ):
            if self.conf.get(key):
                return self.conf[key]
        return ""

    @property
    def glue(self) -> tuple[str, str] | None:
        """Region and account, if AWS Glue is the metastore."""
        factory = self.conf.get("spark.hadoop.hive.metastore.client.factory.class", "")
        if _GLUE not in factory:
            return None
        account = self.conf.get("spark.glue.accountId") or self.conf.get(
            "spark.hadoop.hive.metastore.glue.catalogid"
        )
        region = self.conf.get("spark.hadoop.aws.region") or self.conf.get("spark.hadoop.aws.glue.region")
        return (region, account) if region and account else None

    def jdbc(self, url: str, options: Mapping[str, Any], result: Sequence[str] = ()) -> list[DatasetBuilder]:
        """The table of a JDBC read or write, or the tables of its query, whose columns are `result`."""
        home = {"derby.system.home": self.conf.get("derby.system.home", "")}
        return connectors.jdbc(url, {**home, **options}, result)

    def settings_of(self, name: str) -> dict[str, str]:
        """The settings of a catalog, without their prefix; `""` is the key of its class."""
        prefix = f"spark.sql.catalog.{name}"
        is_of_session = any(key.startswith(prefix) for key in self.session)
        if name not in self._catalogs or is_of_session:
            if prefix not in self.conf and self._read is not None:
                try:
                    self._application_conf |= self._read()  # set after the session began
                except Exception:  # the session may be stopped
                    return {}
            found = {
                k[len(prefix) :].lstrip("."): v
                for k, v in self.conf.items()
                if re.match(rf"{re.escape(prefix)}(\.|\Z)", k)
            }
            if not found or is_of_session:
                return found
            self._catalogs[name] = found
        return self._catalogs[name]

    def remember(self, name: TableName, table: dict[str, Any]) -> None:
        """Keep a table of a plan, for commands that hold only its name."""
        key = (self._case(name.database or "default"), self._case(name.table))
        self._tables.pop(key, None)
        if table.get("location"):
            self._tables[key] = table
            if len(self._tables) > MAX_TABLES:
                self._tables.popitem(last=False)

    def forget_database(self, database: str) -> None:
        """Remove the tables of a database that was dropped."""
        for key in [key for key in self._tables if key[0] == database]:
            del self._tables[key]

    def remembered(self, name: TableName) -> dict[str, Any] | None:
        """A table as an earlier plan described it."""
        return self._tables.get((self._case(name.database or "default"), self._case(name.table)))

    def table(self, name: TableName) -> dict[str, Any] | None:
        """A table of the session catalog, from the catalog or an earlier plan."""
        key = (self._case(name.database or "default"), self._case(name.table))
        if self._lookup is not None:
            try:
                text = self._lookup(*key)
                if text:
                    found: dict[str, Any] = orjson.loads(text)
                    return found
            except Exception as error:  # the catalog may be unreachable
                logger.debug("The catalog lookup of %s failed: %s", key, error)
        return self._tables.get(key)

    def default_location(self, name: TableName) -> str:
        """Spark's location of a managed table: below that of its database; empty if that is not known."""
        database = self._case(name.database or "default")
        home = ""
        if self._locate is not None:
            try:
                home = self._locate(database)
            except Exception as error:  # the catalog may be unreachable
                logger.debug("The location of database %s is not known: %s", database, error)
        if not home and database == "default":
            home = self.warehouse
        return f"{home.rstrip('/')}/{self._case(name.table)}" if home else ""

    def stored(self, name: TableName) -> TableName:
        """A table's name as the session catalog stores it."""
        return TableName(name.catalog, self._case(name.database), self._case(name.table))

    def _case(self, name: str) -> str:
        """A name as the session catalog stores it."""
        is_exact = self.conf.get("spark.sql.caseSensitive", "false").lower() == "true"
        return name if is_exact else name.lower()


def _is_absolute(path: str) -> bool:
    return re.match(r"([A-Za-z][\w+.-]*:)?/", path) is not None


def table_name(document: dict[str, Any], database: str = "default") -> TableName:
    """A TableIdentifier or a V2 Identifier of the plan document; in `database` if it is unqualified."""
    if document.get("@") == "name":
        return TableName("", ".".join(document.get("namespace") or ()), str(document.get("name", "")))
    return TableName(
        str(document.get("catalog") or ""),
        str(document.get("database") or database),
        str(document.get("table", "")),
    )


def _format(table: dict[str, Any], provider: str) -> str:
    """The file format; of a Hive table, by its input format class."""
    if provider not in ("", "hive"):
        return provider
    reads = str(table.get("inputFormat") or "").lower()
    return next((name for name in _HIVE_FORMATS if name in reads), provider)


class SessionTables:
    """Tables of the session catalog: named by their location, with the table name as a symlink."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def of_document(self, table: dict[str, Any]) -> list[DatasetBuilder]:
        """The datasets of a CatalogTable, from a plan or the catalog."""
        name = table_name(table["id"], self._catalogs.database)
        self._catalogs.remember(name, table)
        if table.get("type") == "VIEW":
            return [self._view(name, table)]
        location, provider = table.get("location"), str(table.get("provider") or "")
        known = options_lower_case(table.get("options"), table.get("properties"))
        if not location and provider.endswith("jdbc") and known.get("url"):
            found = self._catalogs.jdbc(known["url"], known)
        elif not location and provider.endswith("kafka"):
            found = connectors.kafka(known)
        else:
            at = location or known.get("path") or self._catalogs.default_location(name)
            one = file_dataset(at, _format(table, provider)) if at else self._unlocated(name)
            if provider in ("delta", "iceberg"):
                one.facets["storage"] = facets.storage(provider, "parquet")
            one.location_is_default = not location
            found = [one]
        for each in found:
            self.add_names(each, name)
            self.describe(each, table)
        return found

    def by_name(self, document: dict[str, Any]) -> list[DatasetBuilder]:
        """The datasets of a table by its name."""
        name = table_name(document, self._catalogs.database)
        known = self._catalogs.table(name)
        if known is not None:
            return self.of_document(known)
        at = self._catalogs.default_location(name)
        one = file_dataset(at) if at else self._unlocated(name)
        one.location_is_default = True
        self.add_names(one, name)
        return [one]

    def _unlocated(self, name: TableName) -> DatasetBuilder:
        """A table without a known location: its name in the catalog is the dataset's name."""
        return dataset(self._symlink(name) or DatasetId(f"catalog:{SESSION_CATALOG}", name.dotted))

    def view_by_name(self, document: dict[str, Any]) -> list[DatasetBuilder]:
        """The dataset of a view by its name."""
        return [self._view(table_name(document, self._catalogs.database), {})]

    def add_names(self, found: DatasetBuilder, name: TableName) -> None:
        """Add the symlink and the catalog facet of a table in the session catalog."""
        other = self._symlink(name)
        if other is not None:
            add_symlink(found, other)
        found.facets["catalog"] = self._catalog()

    def _symlink(self, name: TableName) -> DatasetId | None:
        known = self._catalogs
        return table_symlink(
            known.stored(name),
            warehouse=known.warehouse,
            metastore_uris=known.metastore_uris,
            glue=known.glue,
        )

    def _view(self, name: TableName, table: dict[str, Any]) -> DatasetBuilder:
        """A view has no location; its name in the catalog is the dataset's name."""
        id = self._symlink(name)
        one = dataset(id or DatasetId(f"catalog:{SESSION_CATALOG}", name.dotted))
        one.facets |= {"datasetType": facets.dataset_type("VIEW"), "catalog": self._catalog()}
        self.describe(one, table)
        return one

    def describe(self, found: DatasetBuilder, table: dict[str, Any]) -> None:
        """Add the comment, the owner and the columns of a table in the session catalog."""
        if comment := table.get("comment"):
            found.facets["documentation"] = facets.documentation(str(comment))
        if owner := table.get("owner"):
            found.facets["ownership"] = facets.ownership(str(owner))
        struct = table.get("schema")
        if isinstance(struct, dict) and struct.get("fields"):
            found.facets["schema"] = facets.schema_of_struct(struct)

    def _catalog(self) -> dict[str, Any]:
        is_hive = self._catalogs.conf.get("spark.sql.catalogImplementation") == "hive"
        warehouse = self._catalogs.warehouse
        return facets.catalog(
            "hive" if is_hive else "spark",
            "hive" if is_hive else "in-memory",
            SESSION_CATALOG,
            metadata_uri=self._catalogs.metastore_uris,
            warehouse_uri=f"file:{warehouse}" if warehouse.startswith("/") else warehouse,
        )


class V2Tables:
    """Tables of the DataSource V2 API, and resolved names in any catalog."""

    def __init__(self, catalogs: Catalogs, tables: SessionTables) -> None:
        self._catalogs = catalogs
        self._tables = tables

    def of_fields(self, fields: dict[str, Any]) -> list[DatasetBuilder]:
        """The fields of a relation, or of a resolved table: `table`, `catalog`, `identifier`, `options`."""
        table = fields.get("table")
        table = table if isinstance(table, dict) else {}
        if table.get("@") == "catalogTable":
            return self._tables.of_document(table)
        kind = str(table.get("cls", "")).rstrip("$").rpartition(".")[2].rpartition("$")[2]
        known = options_lower_case(fields.get("options"), fields.get("extraOptions"))
        if kind in _NO_DATASET:
            return []
        if "jdbc" in table:
            return self._jdbc(table["jdbc"], fields)
        if kind.startswith("Kafka"):
            return connectors.kafka(known)
        if kind == "PythonTable":
            return connectors.python_source(str(table.get("provider") or table.get("name")), known)
        if kind.startswith("Rate"):
            return [dataset(DatasetId("spark", "rate"))]
        if kind == "TextSocketTable":
            found = re.match(r"Socket\[(.*):(\d+)\]", str(table.get("name", "")))
            return connectors.socket(
                known if known.get("host") else {"host": found[1], "port": found[2]} if found else {}
            )
        if kind.startswith("Memory"):
            name = self._catalogs.stream or known.get("queryname")
            if not name:
                return [unknown_dataset("a table in memory has no name: its stream has none")]
            return [dataset(DatasetId("spark", f"memory/{name}"))]
        if table.get("paths"):
            return [file_dataset(path, str(table.get("format", "")).lower()) for path in table["paths"]]
        return self._named(table, fields, known)

    def by_identifier(self, fields: dict[str, Any]) -> list[DatasetBuilder]:
        """A ResolvedIdentifier: a catalog and a name, without the table's metadata."""
        catalog = str((fields.get("catalog") or {}).get("name", ""))
        identifier = fields.get("identifier") or {}
        if catalog in ("", SESSION_CATALOG):
            return self._tables.by_name(
                {"database": ".".join(identifier.get("namespace") or ()), "table": identifier.get("name")}
            )
        return self._named({}, fields, {})

    def _jdbc(self, connection: dict[str, Any], fields: dict[str, Any]) -> list[DatasetBuilder]:
        identifier = fields.get("identifier")
        options = dict(connection.get("options") or {})
        if isinstance(identifier, dict):
            options = {k: v for k, v in options.items() if k.lower() not in ("dbtable", "query")}
            options["dbtable"] = ".".join([*(identifier.get("namespace") or ()), str(identifier.get("name"))])
        return self._catalogs.jdbc(str(connection.get("url", "")), options)

    def _named(
        self, table: dict[str, Any], fields: dict[str, Any], known: dict[str, str]
    ) -> list[DatasetBuilder]:
        catalog = fields.get("catalog") or {}
        identifier = fields.get("identifier")
        properties = options_lower_case(table.get("properties"))
        location = table.get("location") or properties.get("location") or known.get("path")
        name = table_name(identifier) if isinstance(identifier, dict) else None
        where = str(catalog.get("name", ""))
        lake = self._lake(table, properties, where)
        if name is None and not location:
            text = str(table.get("name") or "")
            return [unknown_dataset(f"the dataset of the table {text} is not known")] if text else []
        if name is not None and not location and where in ("", SESSION_CATALOG):
            return self._tables.by_name({"database": name.database, "table": name.table})
        if name is not None:
            location = self._location(where, name, location)
        if location:
            found = file_dataset(str(location))
            found.location_is_default = not table.get("location")
            layer = lake or found.id.namespace.partition(":")[0]
            file_format = properties.get("write.format.default") or "parquet" if lake else None
            found.facets["storage"] = facets.storage(layer, file_format)
            if name is not None:
                self._add_names(found, name, where, lake)
        else:
            assert name is not None
            conf = self._catalogs.settings_of(where)
            if conf.get("url", "").startswith("jdbc:"):
                return self._catalogs.jdbc(conf["url"], {"dbtable": name.dotted})
            namespace = (
                conf.get("uri") or conf.get("url") or conf.get("warehouse") or f"catalog:{where or 'unknown'}"
            )
            found = dataset(DatasetId(namespace, name.dotted))
            found.location_is_default = True
            found.facets["catalog"] = self._catalog(where, lake)
        found.table_name = ".".join((where, name.dotted)) if name is not None else str(table.get("name", ""))
        if version := table.get("version"):
            found.plan_version = str(version)
            found.facets["version"] = facets.version(found.plan_version)
        if comment := properties.get("comment"):
            found.facets["documentation"] = facets.documentation(comment)
        if owner := properties.get("owner"):
            found.facets["ownership"] = facets.ownership(owner)
        return [found]

    def _location(self, catalog: str, name: TableName, known: Any) -> str:
        """The location of a table: its own, the last known, or the default of a Hadoop catalog."""
        key = TableName("", f"{catalog}:{name.database}", name.table)
        if known:
            self._catalogs.remember(key, {"location": str(known)})
            return str(known)
        if (earlier := self._catalogs.remembered(key)) is not None:
            return str(earlier["location"])
        conf = self._catalogs.settings_of(catalog)
        if conf.get("type") == "hadoop" and conf.get("warehouse"):
            return "/".join([conf["warehouse"].rstrip("/"), *name.database.split("."), name.table])
        return ""

    def _lake(self, table: dict[str, Any], properties: dict[str, str], catalog: str) -> str:
        cls = str(table.get("cls", "")) or self._catalogs.settings_of(catalog).get("", "")
        if (
            "iceberg" in cls
            or properties.get("provider") == "iceberg"
            or properties.get("format", "").startswith("iceberg")
        ):
            return "iceberg"
        return "delta" if "delta" in cls or properties.get("provider") == "delta" else ""

    def _add_names(self, found: DatasetBuilder, name: TableName, catalog: str, lake: str) -> None:
        conf = self._catalogs.settings_of(catalog)
        kind = conf.get("type", "")
        if catalog in ("", SESSION_CATALOG):
            self._tables.add_names(found, name)
            return
        if kind == "hive" or "hive" in conf.get("catalog-impl", "").lower():
            uri = conf.get("uri") or self._catalogs.metastore_uris
            host = uri.split(",")[0].rpartition("://")[2] or "localhost:9083"
            add_symlink(found, DatasetId(f"hive://{host}", name.dotted))
        elif kind in ("rest", "nessie") and conf.get("uri"):
            add_symlink(found, DatasetId(conf["uri"], name.dotted))
        elif conf.get("warehouse"):
            add_symlink(found, DatasetId(folder_namespace(conf["warehouse"]), name.dotted))
        else:
            add_symlink(found, DatasetId(f"catalog:{catalog}", name.dotted))
        found.facets["catalog"] = self._catalog(catalog, lake)

    def _catalog(self, catalog: str, lake: str) -> dict[str, Any]:
        conf = self._catalogs.settings_of(catalog)
        cls = conf.get("", "").rpartition(".")[2]
        return facets.catalog(
            lake or "spark",
            conf.get("type") or cls or "unknown",
            catalog or "unknown",
            metadata_uri=conf.get("uri") or conf.get("url"),
            warehouse_uri=conf.get("warehouse"),
        )
