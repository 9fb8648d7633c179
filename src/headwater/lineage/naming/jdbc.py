"""Datasets of JDBC: namespace and name from the URL of a connection and a table.

Users, passwords and other parameters of the URL never become part of a name (G12).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from headwater.lineage.naming.names import DatasetId
from headwater.lineage.naming.secret_mask import without_users

# the product in a JDBC URL, the scheme of the namespace, the default port
_PRODUCTS = {
    "postgresql": ("postgres", 5432),
    "mysql": ("mysql", 3306),
    "mariadb": ("mysql", 3306),
    "sqlserver": ("sqlserver", 1433),
    "oracle": ("oracle", 1521),
    "db2": ("db2", 50000),
    "teradata": ("teradata", 1025),
    "crate": ("crate", 5432),
    "trino": ("trino", 8080),
    "presto": ("presto", 8080),
    "oceanbase": ("oceanbase", 2881),
    "clickhouse": ("clickhouse", 8123),
    "ch": ("clickhouse", 8123),
    "redshift": ("redshift", 5439),
    "snowflake": ("snowflake", 443),
    "hive2": ("hive", 10000),
    "cassandra": ("cassandra", 9042),
    "vertica": ("vertica", 5433),
}
_HOSTS = re.compile(r"^(?:[^/@]*@)?([^/?;]*)(/[^?;]*)?(?:[?;](.*))?\Z", re.DOTALL)
_ORACLE = re.compile(r"^(?:thin|oci8?):(?:[^@/]*(?:/[^@]*)?)?@(?://)?(.*)\Z", re.IGNORECASE | re.DOTALL)
_EMBEDDED = {"derby", "sqlite", "h2", "hsqldb", "duckdb"}


class Location(msgspec.Struct, frozen=True):
    """The target of a connection: the namespace, and the prefix of its table names."""

    namespace: str
    prefix: tuple[str, ...] = ()
    schema: str = ""


def jdbc_id(url: str, table: str, properties: Mapping[str, str] | None = None) -> DatasetId:
    """The dataset of one table. Quotes around its parts are dropped; the database of the URL comes first,
    unless the table is named with its database already."""
    place = location(url, properties)
    parts = [_unquoted(part) for part in re.findall(r'"[^"]*"|`[^`]*`|\[[^\]]*\]|[^.]+', table.strip())]
    if len(parts) == 1 and place.schema:
        parts = [place.schema, *parts]
    if place.prefix and len(parts) < 3 and tuple(parts[: len(place.prefix)]) != place.prefix:
        parts = [*place.prefix, *parts]
    return DatasetId(place.namespace, ".".join(parts))


def location(url: str, properties: Mapping[str, str] | None = None) -> Location:
    """The namespace of a connection; of an unknown product, the host without credentials and parameters."""
    rest = re.sub(r"^jdbc:", "", without_users(url.strip()), flags=re.IGNORECASE)
    product, _, rest = rest.partition(":")
    product = product.lower()
    known = {name.lower(): value for name, value in (properties or {}).items()}
    if product in _EMBEDDED:
        return _embedded(product, rest)
    if product == "oracle":
        return _oracle(rest)
    if product in ("mysql", "mariadb") and not rest.startswith("//"):
        rest = rest.partition(":")[2]  # mysql:loadbalance://…, mariadb:sequential://…
    scheme, port = _PRODUCTS.get(product, (product, 0))
    found = _HOSTS.match(rest.removeprefix("//"))
    if found is None or not found[1]:
        return Location(product or "jdbc")
    hosts, path, text = found[1], (found[2] or "").strip("/"), found[3] or ""
    parameters = known | _parameters(text)
    if product == "sqlserver":
        return _sqlserver(hosts, parameters)
    if product == "teradata":
        parameters = known | _parameters(path)
        port = int(parameters.get("dbs_port", port))
        path = parameters.get("database", "")
    if product == "snowflake":
        path = parameters.get("db", path)
        return Location(f"snowflake://{hosts.split('.snowflakecomputing.')[0].lower()}", _parts(path))
    if product == "db2" and ":" in path:
        path = path.partition(":")[0]
    namespace = f"{scheme}://{_with_ports(hosts, port)}"
    schema = (
        parameters.get("currentschema", "").split(",")[0].strip() if scheme in ("postgres", "db2") else ""
    )
    return Location(namespace, _parts(path), schema)


def _embedded(product: str, rest: str) -> Location:
    """A database inside the process: its file, or its name if it is in memory."""
    place, _, text = rest.partition(";")
    place = _parameters(text).get("databasename", place) if product == "derby" else place.partition("?")[0]
    if place.startswith("//"):  # a server of the embedded product
        hosts, _, path = place[2:].partition("/")
        return Location(f"{product}://{_with_ports(hosts, {'derby': 1527}.get(product, 0))}", _parts(path))
    if not place or place.startswith(("mem:", "memory:", ":memory:")):
        return Location(f"{product}:memory", _parts(place.rpartition(":")[2]))
    kind, colon, path = place.partition(":")
    path = path if colon and kind in ("file", "directory", "split", "res") else place
    return Location(f"{product}:{PurePosixPath(path)}")


def _oracle(rest: str) -> Location:
    found = _ORACLE.match(rest)
    place = (found[1] if found else rest).partition("?")[0]
    if place.startswith("("):  # a TNS description
        fields = {name.lower(): value for name, value in re.findall(r"\((\w+)\s*=\s*([^()\s]+)\s*\)", place)}
        service = fields.get("service_name") or fields.get("sid", "")
        return Location(
            f"oracle://{fields.get('host', 'unknown').lower()}:{fields.get('port', 1521)}", _parts(service)
        )
    place = re.sub(r"^(?:tcps?:)?//", "", place)
    hosts, slash, service = place.partition("/")
    if not slash and hosts.count(":") == 2:  # host:port:sid
        hosts, _, service = hosts.rpartition(":")
    return Location(f"oracle://{_with_ports(hosts, 1521)}", _parts(service.partition(":")[0]))


def _sqlserver(hosts: str, parameters: Mapping[str, str]) -> Location:
    host, _, instance = hosts.partition("\\")
    if instance:
        instance, _, port = instance.partition(":")
        host = f"{host}:{port}" if port else host
    instance = instance or parameters.get("instancename", "")
    namespace = f"sqlserver://{_with_ports(host, 1433)}" + (f"/{instance}" if instance else "")
    database = parameters.get("databasename") or parameters.get("database") or ""
    return Location(namespace, _parts(database))


def _with_ports(hosts: str, port: int) -> str:
    named = []
    for host in hosts.split(","):
        host = host.strip().lower()
        has_port = re.search(r":\d+\Z", host) if not host.startswith("[") else re.search(r"\]:\d+\Z", host)
        named.append(host if has_port or not port else f"{host}:{port}")
    return ",".join(named)


def _parameters(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in re.split(r"[;&,]", text) if "=" in pair)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[/.]", path.strip("/")) if part)


def _unquoted(part: str) -> str:
    return part[1:-1] if len(part) > 1 and part[0] in '"`[' else part
