"""The view of what a change affects, and the tables of a trace and of an impact as files."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby

from headwater.graph.query.answers import CatalogueEntry, ColumnEdge, Impact, ImpactedDataset, JobNode, Trace
from headwater.graph.query.query import GraphQuery
from headwater.http.response import Response
from headwater.page.templates import NO_STORE_HEADERS, last_segment
from headwater.page.views.view import Parameters, View

MAX_DATASETS = 1_000
MAX_COLUMNS = 5_000
DEPTH = 50
CSV = "text/csv; charset=utf-8"


def impact_view(query: GraphQuery, parameters: Parameters) -> View:
    """The datasets that a change of a dataset or column affects, by distance, with owners and last runs."""
    found = _impact(query, parameters)
    affected = [dataset for dataset in found.datasets if dataset.distance]
    entries = query.entries(dataset.key for dataset in affected)
    levels = [
        (distance, list(datasets))
        for distance, datasets in groupby(
            sorted(affected, key=lambda dataset: (dataset.distance, dataset.namespace, dataset.name)),
            key=lambda dataset: dataset.distance,
        )
    ]
    owners: dict[str, int] = defaultdict(int)
    for entry in entries.values():
        for owner in entry.owners:
            owners[owner] += 1
    values = {
        "impact": found,
        "affected": affected,
        "levels": levels,
        "entries": entries,
        "jobs": {job.key: job for job in found.jobs},
        "owners": sorted(owners.items(), key=lambda item: (-item[1], item[0])),
        "without_owner": sum(not entry.owners for entry in entries.values()),
    }
    of = f"{found.column} of {found.name}" if found.column else found.name
    return View("impact.html", f"Impact of {of}", "lineage", values)


def _impact(query: GraphQuery, parameters: Parameters) -> Impact:
    column = parameters.get("column", "") or None
    return query.impact(
        parameters.get("namespace"), parameters.get("name"), column, depth=DEPTH, limit=MAX_DATASETS
    )


def impact_csv(query: GraphQuery, parameters: Parameters) -> Response:
    """The datasets of an impact as a file."""
    found = _impact(query, parameters)
    affected = [dataset for dataset in found.datasets if dataset.distance]
    entries = query.entries(dataset.key for dataset in affected)
    jobs = {job.key: job for job in found.jobs}
    heads = ("distance", "namespace", "dataset", "columns", "jobs", "owners", "last_write", "state")
    rows = [_impact_row(dataset, entries.get(dataset.key), jobs) for dataset in affected]
    return _file("impact", found.name, heads, rows)


def _impact_row(
    dataset: ImpactedDataset, entry: CatalogueEntry | None, jobs: dict[str, JobNode]
) -> Sequence[object]:
    columns = "all" if dataset.columns is None else "; ".join(dataset.columns)
    by = "; ".join(jobs[job].name for job in dataset.jobs if job in jobs)
    owners = "; ".join(entry.owners) if entry else ""
    last = (entry.run_at or "", entry.state) if entry else ("", "")
    return dataset.distance, dataset.namespace, dataset.name, columns, by, owners, *last


def trace_csv(query: GraphQuery, parameters: Parameters) -> Response:
    """The columns of a trace as a file; a gap is a row without a column."""
    namespace, name, column = (parameters.get(key) for key in ("namespace", "name", "column"))
    found = query.trace(namespace, name, column, depth=DEPTH, limit=MAX_COLUMNS)
    heads = ("direction", "distance", "namespace", "dataset", "column", "kinds", "masked", "jobs")
    return _file("trace", f"{name}-{column}", heads, _trace_rows(found))


def _trace_rows(trace: Trace) -> Iterable[Sequence[object]]:
    nodes = {node.key: node for node in trace.datasets}
    jobs = {job.key: job.name for job in trace.jobs}
    distances = {(node.dataset, node.column): node.distance for node in trace.columns}
    edges: dict[tuple[str, str | None], list[ColumnEdge]] = defaultdict(list)
    for edge in trace.column_edges:
        source, target = (edge.source, edge.source_column), (edge.target, edge.target_column)
        if distances.get(target, 0) <= 0:
            edges[source].append(edge)
        if distances.get(source, 0) >= 0:
            edges[target].append(edge)
    for column in trace.columns:
        if column.distance and column.dataset in nodes:
            node, own = nodes[column.dataset], edges[column.dataset, column.column]
            kinds = "; ".join(dict.fromkeys((edge.subtype or edge.type).lower() for edge in own))
            by = "; ".join(dict.fromkeys(jobs[edge.job] for edge in own if edge.job in jobs))
            masked = "yes" if any(edge.masking for edge in own) else ""
            direction = "upstream" if column.distance < 0 else "downstream"
            place = (node.namespace, node.name, column.column or "")
            yield direction, abs(column.distance), *place, kinds, masked, by
    for gap in trace.gaps:
        if gap.source in nodes:
            node = nodes[gap.source]
            yield "gap", "", node.namespace, node.name, "", "no column lineage", "", jobs.get(gap.job, "")


def _file(kind: str, of: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(heads)
    writer.writerows([_cell(value) for value in row] for row in rows)
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in last_segment(of))[:60]
    disposition = f'attachment; filename="{kind}-{name}.csv"'
    headers = {**NO_STORE_HEADERS, "Content-Disposition": disposition}
    return Response(200, text.getvalue().encode("utf-8", "replace"), content_type=CSV, headers=headers)


def _cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula: names come from events."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
