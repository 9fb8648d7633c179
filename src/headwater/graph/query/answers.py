"""Views: what the queries answer, as plain data that becomes JSON.

Within one answer things refer to each other by `key`. Keys are opaque texts; links that should last name a
dataset or job by its namespace and name.
"""

from __future__ import annotations

import msgspec

from headwater.graph.ingest.facet_parsers import Change

__all__ = [
    "Column",
    "ColumnEdge",
    "ColumnNode",
    "Dataset",
    "DatasetNode",
    "Edge",
    "Gap",
    "Hit",
    "Impact",
    "ImpactedDataset",
    "Job",
    "JobNode",
    "Name",
    "Neighbourhood",
    "Run",
    "RunDataset",
    "RunSummary",
    "Statistic",
    "Summary",
    "Trace",
    "Version",
    "is_part",
    "key_of_dataset",
    "key_of_job",
]


def key_of_dataset(id: int) -> str:
    return f"d{id:x}"


def key_of_job(id: int) -> str:
    return f"j{id:x}" if id else ""


class Name(msgspec.Struct, frozen=True):
    """One name of a dataset."""

    namespace: str
    name: str


class Column(msgspec.Struct):
    """A field of the current schema; `type` is empty for one that only lineage mentions."""

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

    Not `current`: the job did not mention it when it last told what it reads or writes.
    """

    source: str
    target: str
    current: bool


def is_part(one: str | None, other: str | None) -> bool:
    """Whether a column is a part of another, or has it as a part: `address` and `address.city`, or the whole
    dataset (None) and anything; also `value` and `value/customer`, a place in JSON text."""
    if one is None or other is None or one == other:
        return True
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and long[len(short)] in "./"


class ColumnEdge(msgspec.Struct, frozen=True):
    """From a column to one that is made of it. A column that is null: the dataset as a whole.

    `type` is DIRECT (its values) or INDIRECT (they decide about it: filter, join, group by, …).
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

    @property
    def identity(self) -> tuple[str, ...]:
        """What it is, apart from what is said of it; edges are sorted by it."""
        ends = (self.source, self.source_column or "", self.target, self.target_column or "")
        return (*ends, self.type, self.subtype, self.job)


class Gap(msgspec.Struct, frozen=True):
    """A job that told nothing about the columns of what it writes: here the trace is incomplete (G11)."""

    job: str
    source: str
    target: str


class Neighbourhood(msgspec.Struct):
    """What is around a dataset or job. `truncated`: the limit was reached and some are left out."""

    start: str
    datasets: list[DatasetNode]
    jobs: list[JobNode]
    edges: list[Edge]
    column_edges: list[ColumnEdge]
    truncated: bool


class ColumnNode(msgspec.Struct, frozen=True):
    """A column that a trace came by; null: the dataset as a whole. Upstream distances are negative."""

    dataset: str
    column: str | None
    distance: int


class Trace(msgspec.Struct):
    """Where a column comes from and what is made of it."""

    dataset: str
    column: str
    datasets: list[DatasetNode]
    jobs: list[JobNode]
    columns: list[ColumnNode]
    column_edges: list[ColumnEdge]
    gaps: list[Gap]
    truncated: bool


class ImpactedDataset(msgspec.Struct):
    """A dataset that a change reaches; `columns` null: all of it, or it is not known which."""

    key: str
    namespace: str
    name: str
    distance: int
    columns: list[str] | None
    jobs: list[str]


class Impact(msgspec.Struct):
    """What a change of a dataset or column reaches, nearest first."""

    namespace: str
    name: str
    column: str | None
    datasets: list[ImpactedDataset]
    jobs: list[JobNode]
    truncated: bool


class Hit(msgspec.Struct):
    """Something that a search found: a `dataset`, a `job` or a `column`; `alias` where a symlink matched."""

    kind: str
    namespace: str
    name: str
    column: str | None = None
    alias: Name | None = None
    last_at: str | None = None


class Summary(msgspec.Struct):
    """How much the graph holds, and how fresh it is; `failed` are jobs whose latest run failed."""

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
    """What a run read or wrote, with the numbers that it told; null where it told none."""

    dataset: DatasetNode
    rows: int | None
    bytes: int | None
    files: int | None


class Run(msgspec.Struct):
    """A run with all that is known about it."""

    run: RunSummary
    parent_job: JobNode | None
    root_job: JobNode | None
    inputs: list[RunDataset]
    outputs: list[RunDataset]
    children: list[RunSummary]
    facets: dict[str, msgspec.Raw]


class Version(msgspec.Struct):
    """A schema that a dataset had, and how it differs from the one that was seen before it."""

    id: str
    first_at: str | None
    last_at: str | None
    is_current: bool
    columns: list[Column]
    changes: list[Change]


class Statistic(msgspec.Struct):
    """What one run told about a dataset: a point of a small chart. `direction`: input or output."""

    run: str
    job: JobNode
    direction: str
    state: str
    at: str | None
    rows: int | None
    bytes: int | None
    files: int | None


class Dataset(msgspec.Struct):
    """A dataset with all that is known about it.

    `facets` are without `schema`, `columnLineage` and `lineage`, which are rows here; `remarks` has what the
    producer said beside those rows, such as what it could not follow.
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


class Job(msgspec.Struct):
    """A job with all that is known about it, and its latest runs."""

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
