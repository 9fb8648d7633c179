"""The events of a case in a readable form that is the same on every machine."""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["summary"]

Event = dict[str, Any]

# The same in every event, or specific to this machine.
_LEFT_OUT = {"dataSource", "processing_engine", "spark_properties", "spark_applicationDetails"}
_LEFT_OUT |= {"parent", "sourceCodeLocation", "spark_jobDetails", "jobType"}


def summary(events: list[Event], places: Mapping[str, Path | str]) -> list[dict[str, Any]]:
    """One entry for each run, by job name. `places` are texts to replace, by their replacement."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event["run"]["runId"], []).append(event)
    runs = dict(sorted(found.items(), key=lambda run: str(run[1][0]["job"]["name"])))
    ids = {run: f"run {number}" for number, run in enumerate(runs, 1)}
    snapshots: dict[str, str] = {}
    return [_numbered(_clean(_run(own, ids), places), snapshots) for own in runs.values()]


def _run(events: list[Event], ids: dict[str, str]) -> dict[str, Any]:
    last = events[-1]
    parent = (last["run"]["facets"].get("parent") or {}).get("run", {}).get("runId")
    found: dict[str, Any] = {
        "job": last["job"]["name"],
        "states": " ".join(event["eventType"] for event in events),
        "type": last["job"]["facets"]["jobType"]["jobType"],
        "parent": ids.get(parent, "application"),
    }
    for key, facet in {**last["run"]["facets"], **last["job"]["facets"]}.items():
        if key not in _LEFT_OUT:
            found[key] = _facet(key, facet)
    for side in ("inputs", "outputs"):
        found[side] = sorted((_dataset(each) for each in last[side]), key=lambda each: str(each["dataset"]))
        names = sorted(_name(each) for each in events[0][side])
        if names != [each["dataset"] for each in found[side]]:
            found[f"{side} at the start"] = names
    return found


def _name(dataset: Event) -> str:
    return f"{dataset['namespace']} {dataset['name']}"


def _dataset(dataset: Event) -> dict[str, Any]:
    found: dict[str, Any] = {"dataset": _name(dataset)}
    for kind in ("facets", "inputFacets", "outputFacets"):
        for key, facet in sorted((dataset.get(kind) or {}).items()):
            if key not in _LEFT_OUT:
                found[key] = _facet(key, facet)
    return found


def _facet(key: str, facet: Event) -> Any:
    fields = {name: value for name, value in facet.items() if not name.startswith("_")}
    if key == "schema":
        return ", ".join(_column(column) for column in fields["fields"])
    if key == "symlinks":
        return [f"{each['type']} {_name(each)}" for each in fields["identifiers"]]
    if key == "columnLineage":
        return _columns(fields)
    if key in ("inputStatistics", "outputStatistics"):
        return {name: value for name, value in fields.items() if name != "size"}
    if key == "errorMessage":
        condition = re.match(r"\[[A-Z_.]+\]", fields["message"])
        return condition[0] if condition else fields["message"].splitlines()[0][:40]
    if key == "extractionError":
        return [
            f"{each.get('task')}: {each['errorMessage'].splitlines()[0][:80]}" for each in fields["errors"]
        ]
    if key == "ownership":
        return [each["name"].replace(getpass.getuser(), "<user>") for each in fields["owners"]]
    if key in ("icebergScanReport", "icebergCommitReport"):
        return {name: _exact(value) for name, value in fields.items()}
    if key == "catalog":
        return f"{fields['framework']} {fields['type']} {fields['name']}"
    if key == "storage":
        return " ".join(fields.values())
    if key == "sql":
        return fields["query"]
    if key == "spark_streamDetails":
        return {name: value for name, value in fields.items() if name in ("queryName", "batchId")}
    if len(fields) == 1:
        return next(iter(fields.values()))
    return fields


def _exact(value: Any) -> Any:
    """A part of a report without sizes and times."""
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if "Size" not in name and "Duration" not in name}


def _numbered(value: Any, snapshots: dict[str, str]) -> Any:
    """Ids of Iceberg's snapshots, numbered in the order in which they appear: two of them differ."""
    if isinstance(value, dict):
        return {key: _numbered(each, snapshots) for key, each in value.items()}
    if isinstance(value, list):
        return [_numbered(each, snapshots) for each in value]
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"\d{14,19}", text):
        return value
    return snapshots.setdefault(text, f"snapshot {len(snapshots) + 1}")


def _column(column: Event) -> str:
    text = f"{column['name']} {column.get('type', '?')}"
    if column.get("fields"):
        text += f"<{', '.join(_column(inner) for inner in column['fields'])}>"
    return text


def _columns(fields: Event) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: sorted({_edge(each) for each in entry["inputFields"]})
        for name, entry in fields["fields"].items()
    }
    if fields.get("dataset"):
        found["*"] = sorted({_edge(each) for each in fields["dataset"]})
    for remark in ("unknown", "cut"):
        if fields.get(remark):
            found[f"({remark})"] = fields[remark]
    return found


def _edge(edge: Event) -> str:
    kinds = [f"{each['type']} {each['subtype']}" for each in edge["transformations"]]
    return f"{edge['name']}:{edge['field']} {', '.join(kinds)}"


def _clean(value: Any, places: Mapping[str, Path | str]) -> Any:
    if isinstance(value, dict):
        return {_clean(key, places): _clean(each, places) for key, each in value.items()}
    if isinstance(value, list):
        return [_clean(each, places) for each in value]
    if not isinstance(value, str):
        return value
    for word, place in places.items():
        value = value.replace(str(place), word) if str(place) else value
    value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>", value)
    return re.sub(r"streaming_query_[0-9a-f]{8}", "streaming_query_<id>", value)
