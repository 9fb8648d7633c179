"""The first view: search, whether events move, what failed, what changed, and the rejects by reason."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from headwater.graph.query.query import GraphQuery
from headwater.log.rejects.rejects import Rejects
from headwater.page.views.rejects import reject_groups
from headwater.page.views.system import Status, SystemStatus, rows_loaded
from headwater.page.views.view import Parameters, View
from headwater.settings import Settings

SHOWN = 8
REPORTED = ("log", "pipeline")  # stages whose errors are not among those of the server
LATE_SECONDS = 600.0  # of an event file or an event of the log that waits


class FirstStep(NamedTuple):
    """Commands that send the first event of one kind, and whether such an event has arrived."""

    title: str
    text: str
    commands: str
    is_done: bool


def home_view(status: SystemStatus, rejects: Rejects, query: GraphQuery, parameters: Parameters) -> View:
    """The state of everything at a glance; three ways to begin while nothing has arrived."""
    now = status.read(query)
    summary = status.summary(query)
    received = status.received()
    is_empty = not (summary.datasets or summary.jobs)
    own = status.settings.pipeline.lineage.namespace
    senders = set() if is_empty else status.cached("senders", lambda: query.integrations(own))
    steps = _steps(status.settings, parameters, senders, has_any=bool(received) or not is_empty)
    values: dict[str, Any] = {
        "summary": summary,
        "received": received,
        "problems": _problems(now),
        "is_empty": is_empty,
        "awaited": now.awaited if now.events is not None and not rows_loaded(now.events) else None,
        "steps": [] if all(step.is_done for step in steps) else steps,
        "failed": status.cached("failed", lambda: _failed(query)),
        "recent": query.search("", kinds=("dataset",), limit=SHOWN),
        "groups": reject_groups(status, rejects, query).groups[:SHOWN],
        "rejects_total": sum(now.rejects.values()),
    }
    return View("home.html", "Home", "home", values)


def _failed(query: GraphQuery) -> Any:
    return query.catalogue("job", state="failed", sort="updated", limit=SHOWN)


def _problems(status: Status) -> list[str]:
    """Why something does not move: the errors of all stages, and events that wait for long."""
    found = list(status.errors)
    found += [
        f"{stage.kind.title}: {stage.error}"
        for stage in status.stages
        if stage.error and stage.id in REPORTED
    ]
    for reader in (*(outlet.reader for outlet in status.outlets), *status.other_readers):
        if reader.lag_events and reader.lag_seconds > LATE_SECONDS:
            name = reader.name.removeprefix("headwater:")
            found.append(f"{name} is {reader.lag_seconds / 60:,.0f} minutes behind the log")
    events = status.events
    if events is not None and status.destinations and events.oldest_seconds > LATE_SECONDS:
        found.append(f"an event file has waited for {events.oldest_seconds / 60:,.0f} minutes")
    return list(dict.fromkeys(found))


def _steps(
    settings: Settings, parameters: Parameters, senders: set[str], *, has_any: bool
) -> list[FirstStep]:
    address = parameters.address
    key = " \\\n  -H 'Authorization: Bearer YOUR-KEY'" if settings.gateway.api_keys else ""
    with_key = " OPENLINEAGE_API_KEY=YOUR-KEY" if settings.gateway.api_keys else ""
    if settings.tokens and settings.tokens[0].client_secret:
        url = f"{address}/api/v1/event?token={settings.tokens[0].client_secret}"
        body, key = {"event_type": "pageview", "price": 12.5}, ""
    else:
        url = f"{address}/api/v1/lineage"
        body = {
            "eventType": "COMPLETE",
            "eventTime": "2026-01-01T00:00:00Z",
            "producer": "https://example.com",
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": {"runId": "01890000-0000-7000-8000-000000000000"},
            "job": {"namespace": "me", "name": "first"},
            "inputs": [{"namespace": "db", "name": "orders"}],
            "outputs": [{"namespace": "db", "name": "report"}],
        }
    sent = f"curl '{url}' -H 'Content-Type: application/json'{key} \\\n  -d '{json.dumps(body)}'"
    transport: dict[str, Any] = {"type": "http", "url": address}
    if settings.gateway.api_keys:
        transport["auth"] = {"type": "api_key", "apiKey": "YOUR-KEY"}
    return [
        FirstStep("Send an event", "From any program that speaks HTTP.", sent, has_any),
        FirstStep(
            "Attach a Spark job",
            "Columns included; the script stays as it is.",
            f"pip install 'headwater[lineage]'\nOPENLINEAGE_URL={address}{with_key} \\\n"
            "  headwater lineage run your_job.py",
            "SPARK" in senders,
        ),
        FirstStep(
            "Point Airflow at it",
            "Also dbt, Flink, Trino: all that send OpenLineage.",
            f"pip install apache-airflow-providers-openlineage\n"
            f"export AIRFLOW__OPENLINEAGE__TRANSPORT='{json.dumps(transport)}'",
            bool(senders - {"SPARK"}),
        ),
    ]
