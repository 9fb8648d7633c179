"""Facets as people read them: description, owners, checks, SQL, errors; the rest as names and values.

Facets come from producers that nothing vouches for, so every value is read with its type, and every list is
bounded. A facet that has another form than the standard one is shown as JSON alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import orjson

from headwater.graph.ingest.untrusted_json import items, mapping, text
from headwater.page.views.sql import Token, formatted

MAX_SHOWN = 200  # of one list
MAX_TEXT = 20_000  # characters of one text
MAX_VALUE = 300
_STANDARD = ("_producer", "_schemaURL", "_deleted")
# Shown in a place of their own, or on another part of the page.
_ELSEWHERE = {"symlinks", "parent", "nominalTime", "errorMessage"}
_FRAMES = re.compile(
    r"\s*(?:at (?:java|javax|jdk|sun|scala|py4j|org\.apache|org\.eclipse|com\.sun)\.|\.\.\. \d+ more"
    r'|File ".*(?:/site-packages/|/lib/python3))'
)


class Check(NamedTuple):
    """One assertion about the data. `succeeded` is None where the producer reports no outcome."""

    name: str
    column: str
    succeeded: bool | None
    detail: str


class ColumnMetrics(NamedTuple):
    """The metrics of one column, as pairs of a name and a value."""

    column: str
    values: list[tuple[str, str]]


class TraceLines(NamedTuple):
    """Lines of a stack trace; those of libraries are folded."""

    lines: str
    length: int
    is_folded: bool


class ErrorReport(NamedTuple):
    """Why a run failed."""

    message: str
    language: str
    trace: list[TraceLines]
    lines: int


class FacetGroup(NamedTuple):
    """A facet without a form of its own: its values by name."""

    key: str
    values: list[tuple[str, str]]


class Facets(NamedTuple):
    """All facets of a dataset, job or run; `raw` are all of them, unchanged."""

    description: str
    owners: list[tuple[str, str]]
    tags: list[str]
    checks: list[Check]
    metrics: list[tuple[str, str]]
    column_metrics: list[ColumnMetrics]
    sql: list[Token]
    source: str
    language: str
    location: str
    version: str
    error: ErrorReport | None
    others: list[FacetGroup]
    raw: dict[str, Any]

    @property
    def failed_checks(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.succeeded is False]


def described(*containers: Mapping[str, msgspec.Raw]) -> Facets:
    """The facets of one or more containers; of a name that several have, the first."""
    raw: dict[str, Any] = {}
    for container in containers:
        for key, value in container.items():
            raw.setdefault(key, value)
    found = {key: mapping(orjson.loads(bytes(value))) for key, value in raw.items()}

    def take(key: str) -> dict[str, Any]:
        return found.pop(key, {})

    documentation, ownership, tags = take("documentation"), take("ownership"), take("tags")
    checks, metrics = take("dataQualityAssertions"), take("dataQualityMetrics")
    sql, source, location = take("sql"), take("sourceCode"), take("sourceCodeLocation")
    url = text(location.get("url"))
    values, columns = _metrics(metrics)
    return Facets(
        text(documentation.get("description"))[:MAX_TEXT],
        _owners(ownership)[:MAX_SHOWN],
        [_tag(each) for each in items(tags.get("tags"))][:MAX_SHOWN],
        sorted(_checks(checks), key=lambda check: check.succeeded is not False)[:MAX_SHOWN],
        values,
        columns,
        formatted(text(sql.get("query"))[:MAX_TEXT]),
        text(source.get("sourceCode") or source.get("source"))[:MAX_TEXT],
        text(source.get("language")),
        url if url.startswith(("https://", "http://")) else "",
        text(location.get("version") or location.get("branch") or location.get("tag")),
        error_report(mapping(take("errorMessage"))),
        [group for group in map(_group, found, found.values()) if group.values],
        raw,
    )


def _owners(facet: dict[str, Any]) -> list[tuple[str, str]]:
    return [(text(each.get("name")), text(each.get("type"))) for each in items(facet.get("owners"))]


def _tag(tag: dict[str, Any]) -> str:
    key, value = text(tag.get("key")), text(tag.get("value"))
    field = text(tag.get("field"))
    named = f"{key}: {value}" if value and value.lower() != "true" else key
    return f"{named} ({field})" if field else named


def _checks(facet: dict[str, Any]) -> Iterator[Check]:
    for each in items(facet.get("assertions")):
        success = each.get("success")
        expected, actual = each.get("expected"), each.get("actual")
        compared = (
            f"expected {_value(expected)}, was {_value(actual)}" if None not in (expected, actual) else ""
        )
        detail = "; ".join(
            part for part in (text(each.get("description")), text(each.get("severity")), compared) if part
        )
        name = text(each.get("assertion") or each.get("name")) or "assertion"
        yield Check(name, text(each.get("column")), success if isinstance(success, bool) else None, detail)


def _metrics(facet: dict[str, Any]) -> tuple[list[tuple[str, str]], list[ColumnMetrics]]:
    whole = [(words(key), _value(value)) for key, value in facet.items() if isinstance(value, (int, float))]
    columns = [
        ColumnMetrics(
            name,
            [
                (words(key), _value(value))
                for key, value in mapping(of).items()
                if isinstance(value, (int, float, str)) and not isinstance(value, bool)
            ][:20],
        )
        for name, of in mapping(facet.get("columnMetrics")).items()
    ]
    return whole[:MAX_SHOWN], [column for column in columns if column.values][:MAX_SHOWN]


def error_report(facet: dict[str, Any]) -> ErrorReport | None:
    """The error of an `errorMessage` facet, its stack trace with the frames of libraries folded."""
    message = text(facet.get("message"))
    if not message:
        return None
    lines = text(facet.get("stackTrace"))[:MAX_TEXT].splitlines()
    trace = []
    for is_library, group in groupby(lines, key=lambda line: _FRAMES.match(line) is not None):
        part = [*group]
        trace.append(TraceLines("\n".join(part), len(part), is_library and len(part) > 2))
    return ErrorReport(message, text(facet.get("programmingLanguage")), trace, len(lines))


def _group(key: str, facet: dict[str, Any]) -> FacetGroup:
    """The values of a facet whose fields are no objects; others are in the JSON alone."""
    values = [
        (words(name), _value(value))
        for name, value in facet.items()
        if key not in _ELSEWHERE
        and name not in _STANDARD
        and value is not None
        and not isinstance(value, (dict, list))
    ]
    return FacetGroup(words(key), values[:20])


def words(name: str) -> str:
    """`rowCount` and `processing_engine` as words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").lower()


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,}"
    return (
        value[:MAX_VALUE] if isinstance(value, str) else orjson.dumps(value, default=str).decode()[:MAX_VALUE]
    )
