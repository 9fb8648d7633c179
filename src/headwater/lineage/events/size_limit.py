"""Byte budgets of events and facets; `extractionError` lists what was removed (G8, G11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from headwater.lineage.facets.make import standard
from headwater.lineage.runs import ExtractionError

Event = dict[str, Any]

# Facets that are never removed.
_KEPT = {"parent", "errorMessage", "extractionError", "processing_engine", "jobType"}
_MOST_ERRORS = 50
_LONGEST_TEXT = 2000


def size(event: Event) -> int:
    """Bytes of the event as JSON."""
    return len(orjson.dumps(event, default=str))


def limit_size(event: Event, *, facet_bytes: int, event_bytes: int) -> int:
    """Reduce the event, in place, to the budgets; return its size in bytes after that."""
    total = size(event)
    if total <= min(facet_bytes, event_bytes):
        return total
    cut: list[ExtractionError] = []
    sizes: list[tuple[int, dict[str, Any], str, str]] = []
    for where, facets in _containers(event):
        for key in list(facets):
            taken = size(facets[key])
            if taken > facet_bytes and key not in _KEPT:
                del facets[key]
                text = f"removed: {taken} bytes, {facet_bytes} allowed"
                cut.append(ExtractionError(f"{where}.{key}", text))
            else:
                sizes.append((taken, facets, key, where))
    total = size(event)
    for taken, facets, key, where in sorted(sizes, key=lambda each: -each[0]):
        if total <= event_bytes:
            break
        if key not in _KEPT:
            del facets[key]
            total -= taken
            text = f"removed: {taken} bytes of an event that is too large"
            cut.append(ExtractionError(f"{where}.{key}", text))
    for side in ("inputs", "outputs"):
        datasets = event.get(side) or []
        if total > event_bytes and len(datasets) > 1:
            # only names are left: halve the list until it fits
            before = len(datasets)
            while total > event_bytes and len(datasets) > 1:
                gone = datasets[len(datasets) // 2 :]
                del datasets[len(datasets) // 2 :]
                total -= sum(size(each) for each in gone)
            cut.append(ExtractionError(side, f"{before - len(datasets)} of {before} datasets removed"))
    add_extraction_errors(event, cut)
    return size(event)


def add_extraction_errors(event: Event, errors: Sequence[ExtractionError]) -> None:
    """Add errors to the event's extractionError facet, in place."""
    if not errors:
        return
    facets = event["run"].setdefault("facets", {})
    before = facets.get("extractionError") or {}
    found = list(before.get("errors", []))
    for each in errors:
        error = {"errorMessage": each.text[:_LONGEST_TEXT], "task": each.task}
        if each.stack:
            error["stackTrace"] = each.stack[: 4 * _LONGEST_TEXT]
        found.append(error)
    facets["extractionError"] = standard(
        "extraction_error_run.ExtractionErrorRunFacet",
        totalTasks=max(len(found), before.get("totalTasks", 0)),
        failedTasks=len(found),
        errors=found[:_MOST_ERRORS],
    )


def _containers(event: Event) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in ("run", "job"):
        yield part, (event.get(part) or {}).get("facets") or {}
    for side in ("inputs", "outputs"):
        for dataset in event.get(side) or []:
            for kind in ("facets", "inputFacets", "outputFacets"):
                yield f"{side}[{dataset.get('name')}]", dataset.get(kind) or {}
