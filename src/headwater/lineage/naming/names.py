"""Names of datasets by their location, and the parts of job names.

The rules are those of the OpenLineage naming page and of openlineage-spark, so that a dataset has the same
name as in the events of other producers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from openlineage.client.naming import dataset as official

from headwater.lineage.naming.secret_mask import without_users

CHAIN_LENGTH = 100  # characters of a job name that come from a chain of RDDs
_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]+):")  # one letter is a drive of Windows
_GLOB = re.compile(r"[*?\[{]")


class DatasetId(NamedTuple):
    """The identity of a dataset."""

    namespace: str
    name: str


class TableName(NamedTuple):
    """A table name of Spark; the catalog is empty if the plan does not have it."""

    catalog: str
    database: str
    table: str

    @property
    def dotted(self) -> str:
        """`database.table`, as symlinks name it."""
        return ".".join(part for part in (self.database, self.table) if part)


def path_id(uri: str) -> DatasetId:
    """The dataset of a path or URI, as Hadoop prints one; a path without a scheme is a local one."""
    uri = without_users(uri.strip())
    found = _SCHEME.match(uri)
    scheme = found[1].lower() if found else "file"
    rest = uri[found.end() :] if found else uri
    if rest.startswith("//"):
        authority, _, path = rest[2:].partition("/")
        path = "/" + path
    else:
        authority, path = "", rest
    path = path.rstrip("/") or "/"
    if scheme in ("file", "local"):
        return DatasetId("file", re.sub(r"^/(?=[A-Za-z]:/)", "", path))
    if store := _OBJECT_STORES.get(scheme):
        key = path.strip("/") or "/"
        named = official.S3(authority, key) if store == "s3" else official.GCS(authority, key)
        return DatasetId(named.get_namespace(), named.get_name())
    if scheme in ("abfs", "abfss", "wasb", "wasbs") and "@" in authority:
        container, _, account = authority.partition("@")
        scheme = {"abfs": "abfss", "wasb": "wasbs"}.get(scheme, scheme)
        return DatasetId(f"{scheme}://{container}@{account}", path.strip("/") or "/")
    if not authority:
        return DatasetId(scheme, path)
    return DatasetId(f"{scheme}://{authority}", path)


def folder_of_glob(path: str) -> str:
    """The folder above the first part of a path that is a pattern; the path itself if it has no pattern."""
    parts = path.split("/")
    at = next((at for at, part in enumerate(parts) if _GLOB.search(part)), None)
    return path if at is None else "/".join(parts[:at]) or "/"


def source_uri(namespace: str) -> str:
    """The namespace as a URI: that of local files is the bare word `file`, which is no URI."""
    if _SCHEME.match(namespace):
        return namespace
    return f"{namespace}:///" if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.\-]*", namespace) else f"urn:{namespace}"


def kafka_id(servers: str, topic: str) -> DatasetId:
    """A topic on a cluster, which is named by its first bootstrap server."""
    first = servers.split(",")[0].strip()
    first = first.rpartition("://")[2]
    host, colon, port = first.rpartition(":")
    if not colon:
        host, port = first, "9092"
    if not host or not topic:
        return DatasetId("kafka", topic or "unknown")
    named = official.Kafka(host, port, topic)
    return DatasetId(named.get_namespace(), named.get_name())


def table_symlink(
    table: TableName,
    *,
    warehouse: str,
    metastore_uris: str = "",
    glue: tuple[str, str] | None = None,
) -> DatasetId | None:
    """The table name of a dataset that is named by its location: in Glue, else in the Hive metastore, else in
    the warehouse folder, which stands for a catalog without an address. None if there is no warehouse.

    openlineage-spark omits the last one for tables outside that folder; without it the event would not
    contain the table's name.
    """
    if glue is not None:
        region, account = glue
        return DatasetId(f"arn:aws:glue:{region}:{account}", f"table/{table.database}/{table.table}")
    if metastore_uris:
        found = urlsplit(metastore_uris.split(",")[0].strip())
        return DatasetId(f"hive://{found.hostname}:{found.port or 9083}", table.dotted)
    if not warehouse:
        return None
    return DatasetId(folder_namespace(warehouse), table.dotted)


def folder_namespace(uri: str) -> str:
    """The namespace of tables that are named inside a folder: `file:/warehouse`, `s3://bucket/warehouse`."""
    home = path_id(uri)
    path = home.name.strip("/")
    if not path:
        return home.namespace
    if "://" in home.namespace:
        return f"{home.namespace}/{path}"
    return f"{home.namespace}:{home.name}"


def normalized(name: str) -> str:
    """A part of a job name: no accents, snake case, only letters, digits and underscores."""
    name = unicodedata.normalize("NFKD", name)
    name = "".join(mark for mark in name if not unicodedata.combining(mark))
    name = re.sub(r"^\W+|\W+\Z", "", name)
    name = re.sub(r"(?<=[^A-Z\W_])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[\W_]+", "_", name).strip("_").lower()


def path_suffix(dataset: DatasetId) -> str:
    """The end of a job name: the table's name, or the last two parts of the path that it writes."""
    if "/" in dataset.name:
        parts = [part for part in unquote(dataset.name).split("/") if part]
        return "_".join(parts[-2:])
    return dataset.name.replace(".", "_")


def job_name(app: str, parts: Sequence[str], suffix: str = "", *, dots: bool = True) -> str:
    """`{app}.{node}.{suffix}`; without `dots` the dots inside and between become underscores."""
    name = ".".join(part for part in (app, *parts, suffix) if part)
    return name if dots else name.replace(".", "_")
