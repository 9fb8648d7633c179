"""The agent's messages, one struct per kind; java/Agent.java writes all except `AppStart`.

Plans stay raw bytes until their first use: most are decoded once, some never.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

MOST_RDDS = 2000
"""RDDs of a chain that the agent writes; java/RddChain.java has the same number."""

_NOTHING = msgspec.Raw(b"")  # msgspec has no optional Raw
Millis = Annotated[int, msgspec.Meta(description="milliseconds since the epoch")]


class ExecutedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the executed plan with metrics: a scan, or a node that writes."""

    cls: str
    name: str
    ids: list[int] = []
    """Expression ids of its output; those of a scan are the ones of its leaf in the analyzed plan."""
    metrics: dict[str, int] = {}


class StageDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that a job will run."""

    id: int
    name: str = ""
    tasks: int = 0


class AppStart(msgspec.Struct, frozen=True, kw_only=True, tag="app_start"):
    """The application has started; `agent.application_of` makes this message, once."""

    id: str
    name: str
    time: Millis
    user: str = ""


class AppEnd(msgspec.Struct, frozen=True, kw_only=True, tag="app_end"):
    """The application has ended; `error` is an exit code other than 0, which Spark reports from 3.5 on."""

    time: Millis
    error: str | None = None


class SqlStart(msgspec.Struct, frozen=True, kw_only=True, tag="sql_start"):
    """A SQL execution begins. `root` is the execution inside which it runs, itself if there is none.

    `plan` is empty if the plan could not be read.
    """

    id: int
    time: Millis
    root: int | None = None
    description: str = ""
    query_id: str | None = None
    sql: str | None = None
    properties: dict[str, str] = {}
    database: str = ""
    """The session's current database, which qualifies names of tables."""
    physical: str = ""
    """Name of the root of the physical plan, of its child where that is WholeStageCodegen."""
    stream_run: str | None = None
    """Run id of the streaming query whose micro-batch this is."""
    batch: int | None = None
    plan: msgspec.Raw = _NOTHING
    plan_error: str | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a SQL execution or a job; `error` is set if it failed."""

    time: Millis
    error: str | None = None
    error_class: str | None = None
    stack: str | None = None


class SqlEnd(Ended, frozen=True, kw_only=True, tag="sql_end"):
    """A SQL execution has ended. `plan` is there if the start had none."""

    id: int
    name: str | None = None
    """`collect`, `command`, `save`, `analyze`, …; None for micro-batches and the like."""
    jobs: list[int] = []
    sql: str | None = None
    plan: msgspec.Raw = _NOTHING
    plan_error: str | None = None
    executed: list[ExecutedNode] = []
    lake: list[dict[str, Any]] = []
    cut: str | None = None
    """What was left out of `executed` and `lake`."""
    """Versions of Iceberg and Delta tables that it read and wrote; java/LakeVersions.java writes them."""


class JobStart(msgspec.Struct, frozen=True, kw_only=True, tag="job_start"):
    """A Spark job begins, inside SQL execution `execution` or of an RDD program."""

    id: int
    time: Millis
    execution: int | None = None
    root: int | None = None
    stages: list[StageDoc] = []
    properties: dict[str, str] = {}
    rdds: list[dict[str, Any]] | None = None
    outputs: list[dict[str, Any]] = []
    rdd_error: str | None = None


class JobEnd(Ended, frozen=True, kw_only=True, tag="job_end"):
    """A Spark job has ended."""

    id: int


class StageDone(msgspec.Struct, frozen=True, kw_only=True, tag="stage_done"):
    """One attempt of a stage has ended."""

    id: int
    attempt: int = 0
    name: str = ""
    tasks: int = 0
    error: str | None = None
    metrics: dict[str, int] = {}


class StreamStart(msgspec.Struct, frozen=True, kw_only=True, tag="stream_start"):
    """A streaming query begins. `id` outlives restarts, `run` does not."""

    id: str
    run: str
    name: str | None
    time: Millis


class StreamBatch(msgspec.Struct, frozen=True, kw_only=True, tag="stream_batch"):
    """The progress of one micro-batch, as Spark's own JSON."""

    run: str
    batch: int
    time: Millis
    progress: msgspec.Raw


class StreamEnd(Ended, frozen=True, kw_only=True, tag="stream_end"):
    """A streaming query has ended."""

    id: str
    run: str


class Dropped(msgspec.Struct, frozen=True, kw_only=True, tag="dropped"):
    """`count` messages were dropped: a queue of the agent was full, or they could not be written (G8)."""

    count: int


Message = (
    AppStart
    | AppEnd
    | SqlStart
    | SqlEnd
    | JobStart
    | JobEnd
    | StageDone
    | StreamStart
    | StreamBatch
    | StreamEnd
    | Dropped
)

_array = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(Message)


def decode(text: str | bytes) -> list[Message | msgspec.DecodeError]:
    """The messages of one poll; one that cannot be decoded is replaced by its error."""
    found: list[Message | msgspec.DecodeError] = []
    for raw in _array.decode(text):
        try:
            found.append(_message.decode(raw))
        except msgspec.DecodeError as error:  # ValidationError is one too
            found.append(error)
    return found
