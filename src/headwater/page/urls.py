"""The paths of the page. Names hold colons and slashes, so they are query parameters."""

from __future__ import annotations

from urllib.parse import urlencode

PATHS = {
    "home": "/",
    "catalogue": "/catalogue",
    "system": "/system",
    "lineage": "/lineage",
    "trace_csv": "/lineage/trace.csv",
    "impact": "/impact",
    "impact_csv": "/impact.csv",
    "svg": "/lineage.svg",
    "dataset": "/dataset",
    "compare": "/dataset/changes",
    "unlink": "/dataset/unlink",
    "relink": "/dataset/link",
    "job": "/job",
    "run": "/run",
    "runs": "/runs",
    "rejects": "/rejects",
    "reject": "/reject",
    "replay": "/rejects/replay",
    "drop": "/rejects/drop",
    "events": "/tail",
    "search": "/search",
    "suggest": "/search.json",
    "live": "/live",
    "live_events": "/live/tail",
    "sign_in": "/login",
    "sign_out": "/logout",
}


def link(view: str, /, **parameters: str | int | None) -> str:
    """The address of a view; parameters that are None are left out."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return PATHS[view] + (f"?{urlencode(given, errors='replace')}" if given else "")
