"""Datasets behind a connection: databases by JDBC, Kafka's topics, sockets, sources written in Python."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import orjson

from headwater.lineage.datasets.dataset import Found, lowered, place
from headwater.lineage.facets import dataset as facets
from headwater.lineage.facets.make import custom
from headwater.lineage.naming.jdbc import jdbc_id, location
from headwater.lineage.naming.names import DatasetId, kafka_id, path_id

__all__ = ["jdbc", "kafka", "python_source", "socket", "tables_of_query"]

logger = logging.getLogger(__name__)
_WORD = re.compile(r'^[\w$."`\[\]-]+$')


def jdbc(url: str, options: Mapping[str, Any]) -> list[Found]:
    """What a JDBC read or write names: a table, or the tables of a query."""
    known = lowered(options)
    text = (known.get("dbtable") or known.get("query") or "").strip()
    if _WORD.match(text):
        return [place(jdbc_id(url, text, known))]
    query = _inner_query(text)
    tables = tables_of_query(query, url)
    if tables:
        return [place(jdbc_id(url, table, known)) for table in tables]
    # Nobody here can read the query: it is told as what it is, in words that stay the same from run to run.
    where = location(url, known)
    name = re.sub(r"\s+", " ", query).strip()[:200] or "unknown"
    return [place(DatasetId(where.namespace, name), extra={"datasetType": facets.dataset_type("QUERY")})]


def _inner_query(text: str) -> str:
    """`(select …) alias`, as Spark wants it in dbtable, without what is around the query."""
    found = re.match(r"^\((.*)\)\s*(?:as\s+)?\w*$", text, re.IGNORECASE | re.DOTALL)
    return found[1].strip() if found else text


def tables_of_query(query: str, url: str) -> list[str]:
    """The tables that a query reads, by openlineage-sql if that is installed; else none are known."""
    try:
        parse: Any = import_module("openlineage_sql").parse
    except ImportError:
        return []
    dialect = re.sub(r"^jdbc:", "", url, flags=re.IGNORECASE).partition(":")[0].lower()
    try:
        parsed = parse([query], dialect={"postgresql": "postgres"}.get(dialect, dialect))
        return [str(table.qualified_name) for table in parsed.in_tables] if parsed else []
    except Exception as error:
        logger.debug("The query of a JDBC source could not be parsed: %s", error)
        return []


def kafka(*maps: Any, topics: list[str] | None = None) -> list[Found]:
    """The topics that options name: one dataset each. A pattern stays one dataset under the pattern's own
    text, unless `topics` tells which ones it stood for."""
    known = lowered(*maps)
    servers = known.get("kafka.bootstrap.servers", known.get("bootstrap.servers", ""))
    names = list(topics or ())
    pattern = known.get("subscribepattern")
    if not names:
        if known.get("topic"):
            names = [known["topic"]]
        elif known.get("subscribe"):
            names = [name.strip() for name in known["subscribe"].split(",") if name.strip()]
        elif known.get("assign"):
            names = _assigned(known["assign"])
        elif pattern:
            names = [pattern]
    found = []
    for name in names:
        one = place(kafka_id(servers, name))
        one.facets["datasetType"] = facets.dataset_type("TOPIC")
        if pattern:
            one.facets["kafka_subscription"] = custom("dataset", subscribePattern=pattern)
        found.append(one)
    return found


def _assigned(text: str) -> list[str]:
    try:
        return sorted(str(topic) for topic in orjson.loads(text))
    except (orjson.JSONDecodeError, TypeError):
        return []


def socket(known: Mapping[str, str]) -> list[Found]:
    """Lines from a socket."""
    at = f"{known.get('host', 'unknown')}:{known.get('port', '0')}"
    return [place(DatasetId(f"socket://{at}", at))]


def python_source(provider: str, options: Any) -> list[Found]:
    """A data source written in Python that says nothing of itself: by its path or URL, else by its name."""
    known = lowered(options)
    for key in ("path", "url", "uri"):
        text = known.get(key, "")
        if re.match(r"^([A-Za-z][\w+.-]*:)?/", text):
            return [place(path_id(re.sub(r"[?#].*$", "", text)), provider)]
    name = known.get("table") or known.get("dbtable") or known.get("path") or known.get("url") or provider
    return [place(DatasetId(f"python:{provider}", name))]
