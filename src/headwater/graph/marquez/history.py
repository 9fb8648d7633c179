"""What Marquez answers over time: counts by hour or day, and events. Sources and tags are read from facets.

The graph keeps runs, not events: an event here is the latest state of a run, and each run counts once, at the
time of that state.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal
from zoneinfo import ZoneInfo

import apsw
import orjson

from headwater.graph.ingest.untrusted_json import iso, items, mapping, micros, text
from headwater.graph.query.answers import RunSummary
from headwater.graph.query.details import runs_between
from headwater.graph.store.schema import State
from headwater.http.response import Problem
from headwater.log.queue.sqlite import select

Period = Literal["DAY", "WEEK"]
Asset = Literal["jobs", "datasets", "sources"]

MAX_FACETS = 100_000  # that tags and sources are read from
_STATES = {State.FAIL: "fail", State.START: "start", State.COMPLETE: "complete", State.ABORT: "abort"}
_ROWS = {
    "jobs": "SELECT first_at FROM jobs WHERE first_at < ?",
    "datasets": "SELECT first_at FROM dataset_names WHERE dataset = id AND first_at < ?",
    "sources": "SELECT min(first_at) FROM dataset_names WHERE first_at < ? GROUP BY namespace",
}


def intervals(period: Period, timezone: str, now: datetime) -> list[tuple[datetime, datetime]]:
    """The 24 hours or 7 days up to now, as Marquez divides them."""
    if period == "DAY":
        last = now.replace(minute=0, second=0, microsecond=0)
        starts = [last - timedelta(hours=back) for back in range(23, -1, -1)]
        return [(start, start + timedelta(hours=1)) for start in starts]
    try:
        zone = ZoneInfo(timezone or "UTC")
    except (ValueError, OSError, KeyError):
        raise Problem(
            400, "bad_request", f"There is no time zone {timezone}.", hint="Use a name such as Europe/Berlin."
        ) from None
    midnight = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [midnight - timedelta(days=back) for back in range(6, -2, -1)]  # local days, also of 23 hours
    return list(pairwise(days))


def event_counts(connection: apsw.Connection, spans: list[tuple[datetime, datetime]]) -> list[dict[str, Any]]:
    """The runs of each interval by their latest state."""
    query = "SELECT state, count(*) FROM runs WHERE last_at >= ?1 AND last_at < ?2 GROUP BY state"
    found = []
    for start, end in spans:
        counts = dict(select(connection, query, _micros(start), _micros(end)))
        states = {name: counts.get(int(state), 0) for state, name in _STATES.items()}
        states["start"] += counts.get(int(State.RUNNING), 0)
        found.append(_interval(start, end) | states)
    return found


def asset_counts(
    connection: apsw.Connection, asset: Asset, spans: list[tuple[datetime, datetime]]
) -> list[dict[str, Any]]:
    """How many jobs, datasets or sources there were at the end of each interval."""
    query = f"SELECT count(*) FROM ({_ROWS[asset]})"  # noqa: S608
    return [
        _interval(start, end) | {"count": select(connection, query, _micros(end))[0][0]}
        for start, end in spans
    ]


def _interval(start: datetime, end: datetime) -> dict[str, Any]:
    return {"startInterval": _text(start), "endInterval": _text(end)}


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _micros(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def events(
    connection: apsw.Connection, *, after: str, before: str, newest_first: bool, limit: int, offset: int
) -> dict[str, Any]:
    """The latest state of each run of a period, in the form of an event."""
    since, until = (_moment(value, name) for value, name in ((after, "after"), (before, "before")))
    found, total = runs_between(
        connection, since, until, newest_first=newest_first, limit=limit, offset=offset
    )
    return {"events": [_event(*each) for each in found], "totalCount": total}


def _moment(value: str, name: str) -> int | None:
    if not value:
        return None
    has_zone = value.endswith("Z") or "+" in value[10:] or "-" in value[10:]
    moment = micros(value if has_zone else f"{value}Z")  # as Marquez reads a time without a zone
    if moment is None:
        raise Problem(400, "bad_request", f"`{name}` is not a time.", hint="Use 2026-01-01T00:00:00Z.")
    return moment


def _event(
    run: RunSummary, facets: dict[str, Any], inputs: list[tuple[str, str]], outputs: list[tuple[str, str]]
) -> dict[str, Any]:
    producer = next((text(mapping(facet).get("_producer")) for facet in facets.values()), "")
    return {
        "eventType": {"NEW": "OTHER", "RUNNING": "START"}.get(run.state, run.state),
        "eventTime": run.last_at,
        "run": {"runId": run.id, "facets": facets},
        "job": {"namespace": run.job.namespace, "name": run.job.name, "facets": {}},
        "inputs": [_dataset(name) for name in inputs],
        "outputs": [_dataset(name) for name in outputs],
        "producer": producer or "https://github.com/OpenLineage",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }


def _dataset(name: tuple[str, str]) -> dict[str, Any]:
    return {"namespace": name[0], "name": name[1], "facets": {}}


def tags(connection: apsw.Connection) -> list[dict[str, Any]]:
    """All tags of datasets and jobs, by name."""
    query = "SELECT value FROM facets WHERE key = 'tags' AND NOT deleted LIMIT ?"
    names = {
        text(tag.get("key"))
        for (value,) in select(connection, query, MAX_FACETS)
        for tag in items(mapping(orjson.loads(value)).get("tags"))
    }
    return [{"name": name, "description": None} for name in sorted(names) if name]


def sources(connection: apsw.Connection) -> list[dict[str, Any]]:
    """The data sources of datasets: by their facet, else the namespace of the dataset."""
    found: dict[str, dict[str, Any]] = {}
    query = (
        "SELECT namespace, min(first_at), max(last_at) FROM dataset_names WHERE dataset = id"
        " GROUP BY namespace LIMIT ?"
    )
    for namespace, first_at, last_at in select(connection, query, MAX_FACETS):
        found[namespace] = _source(namespace, namespace, iso(first_at), iso(last_at))
    query = (
        "SELECT f.value, n.first_at, n.last_at FROM facets f JOIN dataset_names n ON n.id = f.owner"
        " WHERE f.key = 'dataSource' AND NOT f.deleted LIMIT ?"
    )
    for value, first_at, last_at in select(connection, query, MAX_FACETS):
        facet = mapping(orjson.loads(value))
        if name := text(facet.get("name")):
            found[name] = _source(name, text(facet.get("uri")), iso(first_at), iso(last_at))
    return [found[name] for name in sorted(found)]


def _source(name: str, url: str, created_at: str | None, updated_at: str | None) -> dict[str, Any]:
    kind = url.partition(":")[0].upper() if ":" in url else "OTHER"
    return {
        "type": kind,
        "name": name,
        "createdAt": created_at,
        "updatedAt": updated_at,
        "connectionUrl": url,
        "description": None,
    }


def field_tags(facet: dict[str, Any], field: str | None = None) -> list[str]:
    """The names of the tags of a dataset or job, or those of one of its fields."""
    found: Iterable[dict[str, Any]] = items(facet.get("tags"))
    keys = [text(tag.get("key")) for tag in found if (text(tag.get("field")) or None) == field]
    return [key for key in dict.fromkeys(keys) if key]
