"""Datasets of JDBC: namespace and name from the URL of a connection and a table.

The names are those of the specification's naming page and of openlineage-java's tests, where the two differ
those of the tests. Users, passwords and other parameters of the URL never become part of a name (G12).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from headwater.lineage.naming.names import DatasetId
from headwater.lineage.naming.secret_mask import MASK, is_secret_name, without_users

# the product in a JDBC URL, the scheme of the namespace, the default port
_PRODUCTS = {
    "postgresql": ("postgres", 5432),
    "mysql": ("mysql", 3306),
    "mysql+srv": ("mysql", 3306),
    "mariadb": ("mysql", 3306),
    "sqlserver": ("sqlserver", 0),
    "jtds": ("sqlserver", 0),
    "oracle": ("oracle", 1521),
    "db2": ("db2", 6789),
    "teradata": ("teradata", 1025),
    "crate": ("crate", 5432),
    "trino": ("trino", 443),
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
# A database is a schema there: `db.table` is the whole name, whatever database the URL has.
_ONE_LEVEL = {"mysql", "clickhouse", "oceanbase", "cassandra"}
_HOSTS = re.compile(r"^((?:\([^()]*\)|[^/?;()])*)(/[^?;]*)?(?:[?;](.*))?\Z", re.DOTALL)
_PARAMETER = re.compile(r"(?:\A|[;&?])\s*([^=;&?]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;&]*)")
_EMBEDDED = {"derby", "sqlite", "h2", "hsqldb", "duckdb"}
_USER = {"user", "username", "uid"}


class Location(msgspec.Struct, frozen=True):
    """The target of a connection: the namespace, and the prefix of its table names."""

    namespace: str
    prefix: tuple[str, ...] = ()
    schema: str = ""
    one_level: bool = False
    """Whether a table that is named with its database is not given another one."""


def jdbc_id(url: str, table: str, properties: Mapping[str, str] | None = None) -> DatasetId:
    """The dataset of one table. Quotes around its parts are dropped; the database of the URL comes first,
    unless the table is named with its database already."""
    place = location(url, properties)
    parts = [_unquoted(part) for part in re.findall(r'"[^"]*"|`[^`]*`|\[[^\]]*\]|[^.]+', table.strip())]
    if len(parts) == 1 and place.schema:
        parts = [place.schema, *parts]
    if place.prefix and len(parts) < (2 if place.one_level else 3):
        # catalog and schema come from the URL as far as the table does not name them
        prefix = place.prefix[: 3 - len(parts)] if len(place.prefix) == 2 else place.prefix
        parts = [*prefix, *parts]
    return DatasetId(place.namespace, ".".join(parts))


def location(url: str, properties: Mapping[str, str] | None = None) -> Location:
    """The namespace of a connection; of an unknown product, its URL without users and their passwords."""
    url = without_users(url.strip()).replace(MASK, "")  # the agent has masked passwords already
    rest = re.sub(r"^jdbc:", "", url, flags=re.IGNORECASE)
    product, _, rest = rest.partition(":")
    product = product.lower()
    known = {name.lower(): value for name, value in (properties or {}).items()}
    if product in _EMBEDDED:
        return _embedded(product, rest, known)
    if product == "oracle":
        return _oracle(rest)
    if product not in _PRODUCTS:
        return _unknown(product, rest)
    scheme, port = _PRODUCTS[product]
    # mysql:loadbalance://…, ch:https://…, jtds:sqlserver://…, oceanbase:hamode://…
    rest = re.sub(r"^[A-Za-z0-9+]+:(?=//)", "", rest)
    found = _HOSTS.match(rest.removeprefix("//"))
    if found is None:
        return Location(product or "jdbc")
    hosts, path, text = found[1], (found[2] or "").strip("/"), found[3] or ""
    parameters = known | _parameters(text)
    if scheme == "sqlserver":
        return _sqlserver(hosts, path, parameters)
    if not hosts:
        return Location(scheme)
    if product == "teradata":
        parameters = known | _parameters(path.replace(",", ";"))
        port = int(parameters.get("dbs_port", port))
        path = parameters.get("database", "")
    if product == "snowflake":
        account = hosts.split(".snowflakecomputing.")[0].lower()
        schema = parameters.get("schema", "")
        return Location(f"snowflake://{account}", _parts(parameters.get("db", path)), schema)
    if product == "db2" and ":" in path:
        path, _, text = path.partition(":")
        parameters |= _parameters(text)
    if product == "cassandra":
        hosts = hosts.replace("--", ",")
    namespace = f"{scheme}://{_with_ports(hosts, port)}"
    schema = (
        parameters.get("currentschema", "").split(",")[0].strip() if scheme in ("postgres", "db2") else ""
    )
    return Location(namespace, _parts(path), schema, scheme in _ONE_LEVEL)


def _unknown(product: str, rest: str) -> Location:
    """Of an unknown product parameters after `;` and `:` stay, since they may say which server it is."""
    rest = rest.partition("?")[0].removeprefix("//")
    kept = re.sub(
        r"[:;](\w+)=[^;:&]*(?=;|\Z)",
        lambda found: "" if found[1].lower() in _USER or is_secret_name(found[1]) else found[0],
        rest,
    )
    rest = kept if kept == rest else kept.rstrip(";")
    hosts, _, path = rest.partition("/")
    if not hosts:
        return Location(product or "jdbc")
    host, sign, more = _split(hosts)
    return Location(f"{product}://{host.lower()}{sign}{more}", _parts(re.split(r"[;]", path)[0]))


def _split(hosts: str) -> tuple[str, str, str]:
    found = re.search(r"[;:](?=\w+=)", hosts)
    return (hosts[: found.start()], found[0], hosts[found.end() :]) if found else (hosts, "", "")


def _embedded(product: str, rest: str, known: Mapping[str, str]) -> Location:
    """A database inside the process: its file, or its name if it is in memory."""
    place, _, text = rest.partition(";")
    if product == "derby":
        return _derby(place, _parameters(text), known)
    place = place.partition("?")[0]
    if place.startswith("//"):  # a server of the embedded product
        hosts, _, path = place[2:].partition("/")
        return Location(f"{product}://{_with_ports(hosts, 0)}", _parts(path))
    if not place or place.startswith(("mem:", "memory:", ":memory:")):
        return Location(f"{product}:memory", _parts(place.rpartition(":")[2]))
    return Location(f"{product}:{PurePosixPath(_without_kind(place))}")


def _derby(place: str, parameters: Mapping[str, str], known: Mapping[str, str]) -> Location:
    place = place or parameters.get("databasename", "")
    if place.startswith("//"):
        hosts, _, path = place[2:].partition("/")
        return Location(f"derby://{_with_ports(hosts, 1527)}", _parts(path))
    if place.startswith("memory:"):
        return Location("derby:memory", _parts(place.partition(":")[2]))
    home = known.get("derby.system.home") or os.getcwd()
    path = posixpath.normpath(posixpath.join(home, _without_kind(place) or "metastore_db"))
    return Location(f"file:{path}")


def _without_kind(place: str) -> str:
    kind, colon, path = place.partition(":")
    return path if colon and kind in ("file", "directory", "split", "res", "classpath", "jar") else place


def _oracle(rest: str) -> Location:
    place = re.sub(r"^(?:thin|oci8?|kprb):?", "", rest, flags=re.IGNORECASE).rpartition("@")[2]
    if place.startswith("("):
        return _tns(place, rest)
    place = place.partition("?")[0]
    if found := re.match(r"ldaps?:(?://)?([^/\s]+)/(\S+)", place, re.IGNORECASE):
        # the service is the first part of a plain name, the last part of a path
        service = found[2].rpartition("/")[2].partition(",")[0]
        return Location(f"oracle://{_with_ports(found[1], 389)}", _parts(service))
    place = re.sub(r"^(?:tcps?:)?//", "", place)
    hosts, slash, service = place.partition("/")
    if not slash and (found := re.match(r"(\[[^\]]*\]|[^:,]+)(:\d+)?:([^:,\d][^:,]*|[^:,]+(?<=:))\Z", hosts)):
        hosts, service = found[1] + (found[2] or ""), found[3]  # host:port:sid
    elif not slash and "," not in hosts and hosts.count(":") == 2 and not hosts.startswith("["):
        hosts, _, service = hosts.rpartition(":")
    return Location(f"oracle://{_with_ports(hosts, 1521)}", _parts(service.partition(":")[0]))


def _tns(place: str, rest: str) -> Location:
    """A TNS description: all addresses, and the service, the SID or the instance."""
    if place.count("(") != place.count(")"):
        return Location(f"oracle:{rest}")
    hosts = []
    for address in re.findall(r"\(\s*ADDRESS\s*=\s*((?:\([^()]*\)\s*)+)\)", place, re.IGNORECASE):
        fields = _fields(address)
        hosts.append(f"{fields.get('host', 'unknown').lower()}:{fields.get('port', 1521)}")
    fields = _fields(place)
    service = fields.get("service_name") or fields.get("sid") or fields.get("instance_name", "")
    return Location(f"oracle://{','.join(hosts) or 'unknown'}", (service,) if service else ())


def _fields(text: str) -> dict[str, str]:
    return {name.lower(): value for name, value in re.findall(r"\((\w+)\s*=\s*([^()\s]+)\s*\)", text)}


def _sqlserver(hosts: str, path: str, parameters: Mapping[str, str]) -> Location:
    """SQL Server by Microsoft's driver or jTDS. Without a port there is none: an instance has its own."""
    host, _, instance = hosts.partition("\\")
    if instance:
        instance, _, port = instance.partition(":")
        host = f"{host}:{port}" if port else host
    host = host or parameters.get("servername", parameters.get("server", ""))
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    instance = instance or parameters.get("instancename") or parameters.get("instance") or ""
    if not re.search(r"(?<=[^:\[]):\d+\Z", host.rpartition("]")[2] if "]" in host else host):
        port = parameters.get("portnumber") or parameters.get("port") or ""
        host = f"{host}:{port}" if port else host
    namespace = f"sqlserver://{host.lower()}" + (f"/{instance}" if instance else "")
    database = parameters.get("databasename") or parameters.get("database") or path
    return Location(namespace if host else "sqlserver", (database,) if database else ())


def _with_ports(hosts: str, port: int) -> str:
    """Each host in lower case with its port; groups of MySQL in brackets stay, without users."""
    named = []
    for host in re.findall(r"(?:\([^()]*\)|[^,(])+", hosts):
        host = host.strip()
        if "(" in host:
            named.append(_group(host))
            continue
        host = host.rpartition("@")[2].lower()
        has_port = re.search(r":\d+\Z", host) if not host.startswith("[") else re.search(r"\]:\d+\Z", host)
        named.append(host if has_port or not port else f"{host}:{port}")
    return ",".join(named)


def _group(host: str) -> str:
    """`address=(host=a)(port=1)(user=b)` or `(host=a,port=1,user=b)` without user and password."""
    made = []
    for part in re.findall(r"\([^()]*\)", host):
        kept = [
            field
            for field in part[1:-1].split(",")
            if (name := field.partition("=")[0].strip().lower()) not in _USER and not is_secret_name(name)
        ]
        made += [f"({','.join(kept)})"] if kept else []
    return host.partition("(")[0] + "".join(made)


def _parameters(text: str) -> dict[str, str]:
    return {
        found[1].strip().lower(): found[2].strip().removeprefix("{").removesuffix("}")
        for found in _PARAMETER.finditer(text)
    }


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[/.]", path.strip("/")) if part)


def _unquoted(part: str) -> str:
    return part[1:-1] if len(part) > 1 and part[0] in '"`[' else part
