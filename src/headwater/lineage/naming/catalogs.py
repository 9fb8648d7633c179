"""What names depend on besides the plan: Spark's settings, its warehouse folder, its catalogs."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from headwater.lineage.naming.names import TableName, path_id

__all__ = ["Surroundings"]

MOST_TABLES = 10_000
_GLUE = "AWSGlueDataCatalogHiveClientFactory"


class Surroundings:
    """Of one application. `read` gives the session's settings anew, `lookup` a table of the shared catalog as
    the JSON of NodeFields.java; both may ask the JVM and may fail. Neither touches a file system."""

    def __init__(
        self,
        conf: Mapping[str, str],
        *,
        read: Callable[[], Mapping[str, str]] | None = None,
        lookup: Callable[[str, str], str] | None = None,
    ) -> None:
        self._conf = dict(conf)
        self._read = read
        self._lookup = lookup
        self._catalogs: dict[str, dict[str, str]] = {}
        self._tables: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()
        self.database = "default"
        """The current database of the session whose query is being looked at."""
        self.stream = ""
        """The name of the streaming query, while one of its batches is looked at."""

    @property
    def conf(self) -> Mapping[str, str]:
        """Spark's settings as far as they are known."""
        return self._conf

    @property
    def warehouse(self) -> str:
        """The folder of managed tables."""
        return self._conf.get("spark.sql.warehouse.dir", "")

    @property
    def metastore_uris(self) -> str:
        """Where the Hive metastore is, if there is a remote one."""
        for key in (
            "spark.sql.hive.metastore.uris",
            "spark.hadoop.hive.metastore.uris",
            "hive.metastore.uris",
        ):
            if self._conf.get(key):
                return self._conf[key]
        return ""

    @property
    def glue(self) -> tuple[str, str] | None:
        """Region and account, where AWS Glue is the metastore."""
        factory = self._conf.get("spark.hadoop.hive.metastore.client.factory.class", "")
        if _GLUE not in factory:
            return None
        account = self._conf.get("spark.glue.accountId") or self._conf.get(
            "spark.hadoop.hive.metastore.glue.catalogid"
        )
        region = self._conf.get("spark.hadoop.aws.region") or self._conf.get("spark.hadoop.aws.glue.region")
        return (region, account) if region and account else None

    def catalog(self, name: str) -> dict[str, str]:
        """The settings of a catalog, without their prefix; `""` is the key of its class."""
        if name not in self._catalogs:
            conf = self._conf
            if f"spark.sql.catalog.{name}" not in conf and self._read is not None:
                try:
                    self._conf |= self._read()  # set after the session began
                except Exception:  # the session may be gone: what is known must do
                    return {}
            prefix = f"spark.sql.catalog.{name}"
            found = {
                k[len(prefix) :].lstrip("."): v
                for k, v in conf.items()
                if re.match(rf"{re.escape(prefix)}(\.|$)", k)
            }
            if not found:
                return {}
            self._catalogs[name] = found
        return self._catalogs[name]

    def remember(self, name: TableName, table: dict[str, Any]) -> None:
        """Keep what a plan told of a table, for commands that hold only its name."""
        key = (name.database or "default", name.table)
        self._tables.pop(key, None)
        if table.get("location"):
            self._tables[key] = table
            if len(self._tables) > MOST_TABLES:
                self._tables.popitem(last=False)

    def forget_database(self, database: str) -> None:
        """The database is dropped, with the tables in it."""
        for key in [key for key in self._tables if key[0] == database]:
            del self._tables[key]

    def remembered(self, name: TableName) -> dict[str, Any] | None:
        """What an earlier plan told of a table."""
        return self._tables.get((name.database or "default", name.table))

    def table(self, name: TableName) -> dict[str, Any] | None:
        """What the catalog, else an earlier plan, tells of a table of the session's catalog."""
        key = (name.database or "default", name.table)
        if self._lookup is not None:
            try:
                text = self._lookup(*key)
                if text:
                    found: dict[str, Any] = orjson.loads(text)
                    return found
            except Exception:  # the catalog may be gone, or not answer
                return self._tables.get(key)
        return self._tables.get(key)

    def default_location(self, name: TableName) -> str:
        """Where Spark puts a managed table unless its database or the table says otherwise."""
        home = self.warehouse.rstrip("/")
        if not home:
            return ""
        if name.database in ("", "default"):
            return f"{home}/{name.table}"
        return f"{home}/{name.database}.db/{name.table}"

    def is_local(self, path: str) -> bool:
        """Whether a path is of this machine's disk."""
        return path_id(path).namespace == "file"
