"""Datasets of connections: JDBC tables and queries, Kafka topics, sockets, Python data sources."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from headwater.lineage.datasets.jdbc_query import read_query
from headwater.lineage.extend.builders import DatasetBuilder
from headwater.lineage.facets import dataset as facets
from headwater.lineage.facets.dataset import dataset, file_dataset, unknown_dataset
from headwater.lineage.facets.make import custom
from headwater.lineage.naming.jdbc import jdbc_id, location
from headwater.lineage.naming.names import DatasetId, kafka_id

logger = logging.getLogger(__name__)
_WORD = re.compile(r'^[\w$."`\[\]-]+\Z')


def options_lower_case(*maps: Any) -> dict[str, str]:
    """Options by lower-case name, as Spark reads them; the first map that has an option wins."""
    merged: dict[str, str] = {}
    for each in maps:
        items: Iterable[tuple[str, Any]] = each.items() if isinstance(each, Mapping) else ()
        for name, value in items:
            merged.setdefault(str(name).lower(), str(value))
    return merged


def jdbc(url: str, options: Mapping[str, Any], result: Sequence[str] = ()) -> list[DatasetBuilder]:
    """The table of a JDBC read or write, or the tables of its query, whose columns are `result`."""
    known = options_lower_case(options)
    text = (known.get("dbtable") or known.get("query") or "").strip()
    if _WORD.match(text):
        return [dataset(jdbc_id(url, text, known))]
    query = _inner_query(text)
    parsed = read_query(query, url, result)
    if parsed is not None and parsed.tables:
        found = []
        for table in parsed.tables:
            one = dataset(jdbc_id(url, table, known))
            one.query = (table, parsed)
            found.append(one)
        return found
    # A query that cannot be parsed is a dataset named by its text, which is the same in every run.
    where = location(url, known)
    name = re.sub(r"\s+", " ", query).strip()[:200]
    if not name:
        return [unknown_dataset("a JDBC relation has neither a table nor a query")]
    return [dataset(DatasetId(where.namespace, name), extra={"datasetType": facets.dataset_type("QUERY")})]


def _inner_query(text: str) -> str:
    """The query inside `(select …) alias`, the form that Spark requires in dbtable."""
    found = re.match(r"^\((.*)\)\s*(?:as\s+)?\w*\Z", text, re.IGNORECASE | re.DOTALL)
    return found[1].strip() if found else text


def kafka(*maps: Any, topics: list[str] | None = None) -> list[DatasetBuilder]:
    """One dataset for each topic of the options. A pattern is one dataset, named by the pattern, unless
    `topics` lists the topics that it matched."""
    known = options_lower_case(*maps)
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
    if names and not servers.strip():
        return [unknown_dataset("the Kafka cluster is not known: there are no bootstrap servers")]
    found: list[DatasetBuilder] = []
    for name in names:
        one = dataset(kafka_id(servers, name))
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


def socket(known: Mapping[str, str]) -> list[DatasetBuilder]:
    """The dataset of a socket source."""
    if not known.get("host"):
        return [unknown_dataset("the host of a socket source is not known")]
    at = f"{known['host']}:{known.get('port', '0')}"
    return [dataset(DatasetId(f"socket://{at}", at))]


def python_source(provider: str, options: Any) -> list[DatasetBuilder]:
    """A Python data source without lineage methods: by its path or URL, else by its name."""
    known = options_lower_case(options)
    for key in ("path", "url", "uri"):
        text = known.get(key, "")
        if re.match(r"^([A-Za-z][\w+.-]*:)?/", text):
            return [file_dataset(re.sub(r"[?#].*\Z", "", text), provider)]
    name = known.get("table") or known.get("dbtable") or known.get("path") or known.get("url")
    if not name:
        return [unknown_dataset(f"no option of the Python data source {provider} names its dataset")]
    return [dataset(DatasetId(f"python:{provider}", name))]
