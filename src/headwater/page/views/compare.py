"""The view of what changed in the lineage of a dataset between two moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headwater.graph.query.answers import Version
from headwater.graph.query.query import GraphQuery
from headwater.http.response import Problem
from headwater.page.views.view import Parameters, View

DAYS = 7  # between the two moments, if the address names none


def compare_view(query: GraphQuery, parameters: Parameters) -> View:
    """The edges and columns of a dataset that one of two moments had, and the other had not."""
    namespace, name = parameters.get("namespace"), parameters.get("name")
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    after = _moment(parameters.get("after", "")) or now
    before = _moment(parameters.get("before", "")) or after - timedelta(days=DAYS)
    found = query.compare(namespace, name, _micros(before), _micros(after))
    versions = query.dataset(namespace, name).versions
    values = {
        "namespace": namespace,
        "name": name,
        "before": before,
        "after": after,
        "found": found,
        "versions": [version for version in versions if _is_between(version, before, after)],
    }
    return View("compare.html", f"Changes of {name}", "lineage", values)


def _moment(text: str) -> datetime | None:
    """A time as a form sends it, without a zone: UTC."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise Problem(400, "bad_request", "A moment is not a time.", hint="Use 2026-01-01T00:00.") from None


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def _is_between(version: Version, before: datetime, after: datetime) -> bool:
    at = datetime.fromisoformat(version.first_at) if version.first_at else None
    return at is not None and before < at <= after
