"""The structs that queries return; they become JSON, and the OpenAPI schemas are made from them.

Within one answer nodes refer to each other by `key`. Keys are opaque; a permanent link names a dataset or job
by namespace and name.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.graph.store.schema import NO_JOB_ID

UpOrDown = Literal["up", "down"]
LineageDirection = Literal["up", "down", "both"]


def directions(direction: LineageDirection) -> tuple[UpOrDown, ...]:
    """The single directions: upstream, downstream, or both."""
    return ("up", "down") if direction == "both" else (direction,)


def key_of_dataset(id: int) -> str:
    return f"d{id:x}"


def key_of_job(id: int) -> str:
    return f"j{id:x}" if id else ""


def id_of_key(key: str) -> int:
    return int(key[1:], 16) if key else NO_JOB_ID


class Name(msgspec.Struct, frozen=True):
    """One name of a dataset."""

    namespace: str
    name: str


class Column(msgspec.Struct):
    """A column of the current schema, or, with an empty `type`, one that only lineage mentions."""

    name: str
    type: str = ""
    description: str = ""


class DatasetNode(msgspec.Struct):
    """A dataset in a graph. `writers` and `readers` count jobs, shown or not."""

    key: str
    namespace: str
    name: str
    distance: int = 0
    last_at: str | None = None
    writers: int = 0
    readers: int = 0
    columns: list[Column] = []
    columns_omitted: int = 0


class JobNode(msgspec.Struct):
    """A job in a graph, with the state of its latest run."""

    key: str
    namespace: str
    name: str
    state: str = ""
    last_at: str | None = None


class Edge(msgspec.Struct, frozen=True):
    """From a dataset to the job that reads it, from a job to the dataset that it writes, or between datasets.

    Not `current`: the job did not mention it in its latest run. `failed`: all runs that wrote it failed.
    """

    source: str
    target: str
    current: bool
    failed: bool = False


def is_part(one: str | None, other: str | None) -> bool:
    """Whether one column contains the other: `address` and `address.city`, `value` and the JSON pointer
    `value/customer`, or the whole dataset (None) and any column."""
    if one is None or other is None or one == other:
        return True
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and long[len(short)] in "./"


class ColumnEdge(msgspec.Struct, frozen=True):
    """From a column to one that is computed from it; a column that is null is the whole dataset.

    `type` is DIRECT (its values are used) or INDIRECT (it filters, joins, groups, sorts, …). `failed`: all
    runs of the job that wrote the target failed.
    """

    source: str
    source_column: str | None
    target: str
    target_column: str | None
    type: str
    subtype: str
    masking: bool
    current: bool
    job: str
    description: str = ""
    failed: bool = False

    @property
    def identity(self) -> tuple[str, ...]:
        """Both ends, type, subtype and job, without time and description; edges are sorted by it."""
        ends = (self.source, self.source_column or "", self.target, self.target_column or "")
        return (*ends, self.type, self.subtype, self.job)


class Gap(msgspec.Struct, frozen=True):
    """A job without column lineage for a dataset that it writes: the trace is incomplete there (G11)."""

    job: str
    source: str
    target: str


class Omitted(msgspec.Struct, frozen=True):
    """How many more were found than an answer contains. `at_least`: the search ended early."""

    datasets: int = 0
    jobs: int = 0
    edges: int = 0
    columns: int = 0
    column_edges: int = 0
    gaps: int = 0
    at_least: bool = False

    def sentence(self, *, lines: tuple[int, int] | None = None, **shown: int) -> str:
        """The shares that are shown, such as `300 of 4,000 edges`; empty if nothing is omitted."""
        shares = []
        for name, count in shown.items():
            if left := getattr(self, name):
                at_least = "at least " if self.at_least else ""
                shares.append(f"{count:,} of {at_least}{count + left:,} {name.replace('_', ' ')}")
        if lines is not None and (total := lines[1] + self.column_edges) > lines[0]:
            at_least = "at least " if self.at_least else ""
            shares.append(f"{lines[0]:,} of {at_least}{total:,} lines")
        return ", ".join(shares)


class Neighbourhood(msgspec.Struct):
    """The datasets and jobs around one. `truncated`: some are omitted because a limit was reached."""

    start: str
    datasets: list[DatasetNode]
    jobs: list[JobNode]
    edges: list[Edge]
    column_edges: list[ColumnEdge]
    truncated: bool
    omitted: Omitted = Omitted()

    def left_out(self) -> str:
        """The shares that the answer contains, if not all."""
        return self.omitted.sentence(
            datasets=len(self.datasets),
            jobs=len(self.jobs),
            edges=len(self.edges),
            column_edges=len(self.column_edges),
        )


class ColumnNode(msgspec.Struct, frozen=True):
    """A column of a trace; null: the whole dataset. Upstream distances are negative."""

    dataset: str
    column: str | None
    distance: int


class Trace(msgspec.Struct):
    """The columns upstream and downstream of one column."""

    dataset: str
    column: str
    datasets: list[DatasetNode]
    jobs: list[JobNode]
    columns: list[ColumnNode]
    column_edges: list[ColumnEdge]
    gaps: list[Gap]
    truncated: bool
    omitted: Omitted = Omitted()

    def left_out(self) -> str:
        """The shares that the answer contains, if not all."""
        return self.omitted.sentence(
            columns=len(self.columns), column_edges=len(self.column_edges), gaps=len(self.gaps)
        )


class ImpactedDataset(msgspec.Struct):
    """A dataset that a change affects; `columns` null: all of it, or the columns are unknown."""

    key: str
    namespace: str
    name: str
    distance: int
    columns: list[str] | None
    jobs: list[str]


class Impact(msgspec.Struct):
    """The datasets that a change of a dataset or column affects, nearest first."""

    namespace: str
    name: str
    column: str | None
    datasets: list[ImpactedDataset]
    jobs: list[JobNode]
    truncated: bool
    omitted: Omitted = Omitted()

    def left_out(self) -> str:
        """The shares that the answer contains, if not all."""
        return self.omitted.sentence(datasets=len(self.datasets))


class SearchResult(msgspec.Struct):
    """A `dataset`, `job` or `column` that a search found; `alias` where an alias matched."""

    kind: str
    namespace: str
    name: str
    column: str | None = None
    alias: Name | None = None
    last_at: str | None = None


class NamespaceSummary(msgspec.Struct):
    """A namespace with the numbers of its datasets and jobs."""

    name: str
    datasets: int
    jobs: int


class CatalogueEntry(msgspec.Struct):
    """A dataset or job in the catalogue.

    `run` is the latest run of the job, or the latest that wrote the dataset, with its state, its time and
    its duration. `rows` is what a run last reported to have written.
    """

    kind: str
    namespace: str
    name: str
    last_at: str | None
    owners: list[str] = []
    tags: list[str] = []
    run: str = ""
    state: str = ""
    run_at: str | None = None
    seconds: float | None = None
    columns: int | None = None
    writers: int | None = None
    readers: int | None = None
    rows: int | None = None


class CataloguePage(msgspec.Struct):
    """A page of the catalogue. `total` counts all entries that match; `next_after` begins the next page."""

    entries: list[CatalogueEntry]
    total: int
    next_after: str | None = None


class Summary(msgspec.Struct):
    """The numbers of nodes, and the time of the latest event; `failed`: jobs whose latest run failed."""

    datasets: int
    jobs: int
    runs: int
    columns: int
    failed: int
    last_at: str | None


class RunSummary(msgspec.Struct):
    """A run in a list. `state`: NEW, RUNNING, COMPLETE, ABORT or FAIL."""

    id: str
    job: JobNode
    state: str
    started_at: str | None
    ended_at: str | None
    seconds: float | None
    first_at: str | None
    last_at: str | None
    nominal_start_at: str | None = None
    nominal_end_at: str | None = None
    error: str = ""
    parent: str = ""
    root: str = ""


class RunDataset(msgspec.Struct):
    """A dataset that a run read or wrote, with the statistics that it reported, or null."""

    dataset: DatasetNode
    rows: int | None
    bytes: int | None
    files: int | None


class Run(msgspec.Struct):
    """A run with its inputs, outputs, children and facets."""

    run: RunSummary
    parent_job: JobNode | None
    root_job: JobNode | None
    inputs: list[RunDataset]
    outputs: list[RunDataset]
    children: list[RunSummary]
    facets: dict[str, msgspec.Raw]


class Change(msgspec.Struct, frozen=True):
    """One difference between two schemas: `added`, `removed`, or `retyped`."""

    kind: str
    field: str
    before: str = ""
    after: str = ""


class Version(msgspec.Struct):
    """A schema of a dataset, and how it differs from the schema before it."""

    id: str
    first_at: str | None
    last_at: str | None
    is_current: bool
    columns: list[Column]
    changes: list[Change]


class Statistic(msgspec.Struct):
    """The statistics that one run reported about a dataset. `direction`: input or output."""

    run: str
    job: JobNode
    direction: str
    state: str
    at: str | None
    rows: int | None
    bytes: int | None
    files: int | None


class Link(msgspec.Struct, frozen=True):
    """One name lists another as its alias. `producers` say so: `namespace:…` of jobs, or `producer:…`."""

    name: Name
    alias: Name
    producers: list[str]


class Separation(msgspec.Struct, frozen=True):
    """Two names that a user separated: whatever links them, they are not one dataset."""

    kept: Name
    apart: Name


class Dataset(msgspec.Struct):
    """A dataset with its schema versions, jobs, statistics and facets.

    `facets` lacks `schema`, `columnLineage` and `lineage`, which have their own fields; `remarks` holds the
    rest of `columnLineage`, such as the columns that the producer could not resolve. `…_omitted` counts those
    that a long list lacks. `links` say why its names are one dataset, `separations` which links do not count.
    """

    key: str
    namespace: str
    name: str
    aliases: list[Name]
    first_at: str | None
    last_at: str | None
    columns: list[Column]
    versions: list[Version]
    writers: list[JobNode]
    readers: list[JobNode]
    statistics: list[Statistic]
    facets: dict[str, msgspec.Raw]
    input_facets: dict[str, msgspec.Raw]
    output_facets: dict[str, msgspec.Raw]
    remarks: dict[str, msgspec.Raw]
    links: list[Link] = []
    separations: list[Separation] = []
    columns_omitted: int = 0
    versions_omitted: int = 0
    writers_omitted: int = 0
    readers_omitted: int = 0


class Job(msgspec.Struct):
    """A job with its inputs, outputs, latest runs and facets; `…_omitted` as in a dataset."""

    key: str
    namespace: str
    name: str
    first_at: str | None
    last_at: str | None
    parent: JobNode | None
    inputs: list[DatasetNode]
    outputs: list[DatasetNode]
    runs: list[RunSummary]
    facets: dict[str, msgspec.Raw]
    inputs_omitted: int = 0
    outputs_omitted: int = 0
