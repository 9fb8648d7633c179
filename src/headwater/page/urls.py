"""Links: the addresses of the page. Names hold colons and slashes, so they are query parameters only."""

from __future__ import annotations

from urllib.parse import urlencode

__all__ = ["PATHS", "link"]

PATHS = {
    "pipeline": "/",
    "lineage": "/lineage",
    "trace": "/lineage/trace",
    "svg": "/lineage.svg",
    "dataset": "/dataset",
    "job": "/job",
    "run": "/run",
    "runs": "/runs",
    "rejects": "/rejects",
    "reject": "/reject",
    "replay": "/rejects/replay",
    "drop": "/rejects/drop",
    "tail": "/tail",
    "search": "/search",
    "suggest": "/search.json",
    "live": "/live",
    "live_tail": "/live/tail",
    "login": "/login",
    "logout": "/logout",
}


def link(view: str, /, **parameters: str | int | None) -> str:
    """The address of a view; parameters that are None are left out."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return PATHS[view] + (f"?{urlencode(given, errors='replace')}" if given else "")
