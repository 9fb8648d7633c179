"""What stands in for the compiled agent where a JVM has no Janino: JDK proxies that put Spark's events into a
queue, and py4j calls that look into them.

It speaks as java/Agent.java does, so that nothing behind it knows the difference; it tells less, as
plain_plan.py says, and costs ten milliseconds a query instead of a tenth of one. Still pull, never push: the
proxies are Java's own, and nothing in the JVM waits for Python.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.lineage.jvm.plain_plan import plain_plan, sequence

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["PlainAgent"]

MOST_WAITING = 100_000
MOST_KEPT = 200
MOST_TAKEN = 256
PAUSE_SECONDS, POLL_SECONDS = 0.05, 0.5
END_SECONDS = 1.0  # for the end of a query that has ended to be heard
LONGEST_TEXT = 4000
_HEARD = ("onOtherEvent", "onJobStart", "onJobEnd", "onStageCompleted", "onApplicationEnd")
_END = "SparkListenerSQLExecutionEnd"
# Of a job's local properties, those that somebody looks at; each costs a call.
_PROPERTIES = ("headwater.lineage.input", "headwater.lineage.output", "spark.job.description")
_NOTHING = {"type": "noted"}
Told = dict[str, Any]


class PlainAgent:
    """One application's; one thread polls it, others may ask how far it is."""

    def __init__(self, context: SparkContext) -> None:
        gateway: Any = context._gateway
        spark: Any = context._jsc
        jvm = gateway.jvm
        self._bus = spark.sc().listenerBus()
        self._queue = jvm.java.util.concurrent.LinkedBlockingQueue(MOST_WAITING)
        self._batch = jvm.java.util.ArrayList
        self._executions = jvm.org.apache.spark.sql.execution.SQLExecution
        kind = jvm.java.lang.Class.forName("org.apache.spark.scheduler.SparkListenerInterface")
        create = jvm.java.beans.EventHandler.create
        self._proxies = [create(kind, self._queue, "offer", "", method) for method in _HEARD]
        self._heard: deque[Any] = deque()
        self._made = 0
        self._is_woken = False
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._told: OrderedDict[int, bool] = OrderedDict()

    # ------------------------------------------------------------------ what the compiled one has, too

    def attach(self) -> None:
        """Begin to hear."""
        for proxy in self._proxies:
            self._bus.addToQueue(proxy, "headwater")

    def detach(self, millis: int) -> None:
        """Hear no more; what was heard is dealt with by whoever polls."""
        for proxy in self._proxies:
            self._bus.removeListener(proxy)

    def settle(self, millis: int) -> bool:
        """Whether everything that happened so far has been heard."""
        try:
            self._bus.waitUntilEmpty(millis)
        except Exception:  # not in time, or the bus has stopped
            return False
        return True

    def offered(self) -> int:
        """How many messages there have been or will be of what was heard."""
        with self._lock:
            return self._made + int(self._queue.size())

    def poll(self, released: str = "") -> str:
        """The next messages as a JSON array."""
        for number in filter(None, released.split(",")):
            self._kept.pop(int(number), None)
        until = time.monotonic() + POLL_SECONDS
        while not self._take(MOST_TAKEN) and time.monotonic() < until and not self._is_woken:
            time.sleep(PAUSE_SECONDS)
        self._is_woken = False
        told: list[Told] = []
        while self._heard:
            told.append(self._message(self._heard.popleft()))
        return msgspec.json.encode(told).decode()

    def _take(self, most: int) -> bool:
        # Taken out and counted in one step, which `offered` must not come between; so Java is not let wait.
        with self._lock:
            batch = self._batch()
            self._queue.drainTo(batch, most)
            heard = list(batch)
            self._made += len(heard)
        self._heard.extend(heard)
        return bool(heard)

    def wake(self) -> None:
        """End a poll that waits."""
        self._is_woken = True

    def query(self, execution: int) -> Any:
        """The QueryExecution, while it is kept."""
        return self._kept.get(execution)

    def node(self, execution: int, number: int) -> Any:
        """Nothing: these documents do not number the plan's nodes."""

    def job(self, job: int) -> Any:
        """Nothing: jobs are not kept."""

    def rdd(self, job: int, rdd: int) -> Any:
        """Nothing: RDDs are not looked at."""

    def needMemory(self, percent: int) -> None:  # noqa: N802 - as Java spells it
        """Plans are not walked here; there is nothing to spare."""

    def tellRddsOfSql(self, wanted: bool) -> None:  # noqa: N802
        """RDDs are not looked at."""

    def noDelay(self, server: object) -> int:  # noqa: N802
        """Texts are short here."""
        return 0

    # ------------------------------------------------------------------ messages

    def _message(self, event: Any) -> Told:
        try:
            name = str(event.getClass().getSimpleName())
            maker = _MAKERS.get(name)
            return maker(self, event) if maker is not None else _NOTHING
        except Exception:  # an event less, which is counted as the others are
            return {"type": "noted"}

    def _sql_start(self, event: Any) -> Told:
        number = int(event.executionId())
        told: Told = {"type": "sql_start", "id": number, "time": int(event.time())}
        told["description"] = str(event.description())[:LONGEST_TEXT]
        _put(told, "root", lambda: int(event.rootExecutionId().get()))
        _put(told, "query_id", lambda: str(event.queryId().get().toString()))
        _put(told, "physical", lambda: _physical(event.sparkPlanInfo()))
        query = self._executions.getQueryExecution(number) or self._ended(number)
        if query is not None:
            self._keep(number, query)
            if str(query.getClass().getName()).endswith("IncrementalExecution"):
                _put(told, "stream_run", lambda: str(query.runId().toString()))
                _put(told, "batch", lambda: int(query.currentBatchId()))
            _put(
                told,
                "database",
                lambda: str(query.sparkSession().sessionState().catalog().getCurrentDatabase()),
            )
            self._plan(told, number, query)
        return told

    def _ended(self, number: int) -> Any:
        """The query of an execution that Spark has forgotten: it has ended, and its end brings the query."""
        until, looked = time.monotonic() + END_SECONDS, 0
        while True:
            for event in list(self._heard)[looked:]:
                if str(event.getClass().getSimpleName()) == _END and int(event.executionId()) == number:
                    return event.qe()
            looked = len(self._heard)
            if not self._take(MOST_WAITING):
                if time.monotonic() > until:
                    return None
                time.sleep(PAUSE_SECONDS)

    def _sql_end(self, event: Any) -> Told:
        number = int(event.executionId())
        told: Told = {"type": "sql_end", "id": number, "time": int(event.time())}
        _put(told, "name", lambda: str(event.executionName().get()))
        _put(told, "error", lambda: str(event.errorMessage().get())[:LONGEST_TEXT] or None)
        query = event.qe() or self._kept.get(number)
        if query is not None and not self._told.pop(number, False):
            self._plan(told, number, query)
        return told

    def _plan(self, told: Told, number: int, query: Any) -> None:
        try:
            told["plan"] = plain_plan(query.analyzed())
        except Exception as error:
            cause = getattr(error, "java_exception", None)
            told["plan_error"] = str(cause.getMessage() if cause is not None else error)[:LONGEST_TEXT]
        self._told[number] = True
        while len(self._told) > MOST_KEPT:
            self._told.popitem(last=False)

    def _keep(self, number: int, query: Any) -> None:
        self._kept[number] = query
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def _job_start(self, event: Any) -> Told:
        told: Told = {"type": "job_start", "id": int(event.jobId()), "time": int(event.time())}
        properties = event.properties()
        execution = properties.getProperty("spark.sql.execution.id") if properties is not None else None
        if execution is not None:
            told["execution"] = int(execution)
            told["root"] = int(properties.getProperty("spark.sql.execution.root.id") or execution)
            told["properties"] = {
                name: str(value)[:LONGEST_TEXT]
                for name in _PROPERTIES
                if (value := properties.getProperty(name)) is not None
            }
        else:
            told["rdd_error"] = "RDDs are not looked at without the compiled agent"
        told["stages"] = [
            {"id": int(stage.stageId()), "name": str(stage.name())[:300], "tasks": int(stage.numTasks())}
            for stage in sequence(event.stageInfos())
        ]
        return told

    def _job_end(self, event: Any) -> Told:
        told: Told = {"type": "job_end", "id": int(event.jobId()), "time": int(event.time())}
        result = event.jobResult()
        if str(result.getClass().getName()).endswith("JobFailed"):
            told["error"] = str(result.exception().getMessage())[:LONGEST_TEXT]
        return told

    def _stage_done(self, event: Any) -> Told:
        stage = event.stageInfo()
        told: Told = {"type": "stage_done", "id": int(stage.stageId()), "attempt": int(stage.attemptNumber())}
        told |= {"name": str(stage.name())[:300], "tasks": int(stage.numTasks())}
        metrics = stage.taskMetrics()
        if metrics is not None:
            read, written = metrics.inputMetrics(), metrics.outputMetrics()
            told["metrics"] = {
                "records_read": int(read.recordsRead()),
                "bytes_read": int(read.bytesRead()),
                "records_written": int(written.recordsWritten()),
                "bytes_written": int(written.bytesWritten()),
            }
        return told

    def _app_end(self, event: Any) -> Told:
        return {"type": "app_end", "time": int(event.time())}

    def _stream_start(self, event: Any) -> Told:
        return {
            "type": "stream_start",
            "id": str(event.id().toString()),
            "run": str(event.runId().toString()),
            "name": event.name(),
            "time": int(time.time() * 1000),
        }

    def _stream_end(self, event: Any) -> Told:
        told: Told = {"type": "stream_end", "id": str(event.id().toString())}
        told |= {"run": str(event.runId().toString()), "time": int(time.time() * 1000)}
        _put(told, "error", lambda: str(event.exception().get())[:LONGEST_TEXT])
        return told


def _put(told: Told, name: str, ask: Callable[[], Any]) -> None:
    """What this release of Spark does not tell, or an option that is empty, is left out."""
    try:
        value = ask()
    except Exception:
        return
    if value is not None:
        told[name] = value


def _physical(info: Any) -> str:
    name = str(info.nodeName())
    if name.startswith("WholeStageCodegen"):
        return next((str(each.nodeName()) for each in sequence(info.children())), name)
    return name


_MAKERS: dict[str, Callable[[PlainAgent, Any], Told]] = {
    "SparkListenerSQLExecutionStart": PlainAgent._sql_start,
    _END: PlainAgent._sql_end,
    "SparkListenerJobStart": PlainAgent._job_start,
    "SparkListenerJobEnd": PlainAgent._job_end,
    "SparkListenerStageCompleted": PlainAgent._stage_done,
    "SparkListenerApplicationEnd": PlainAgent._app_end,
    "QueryStartedEvent": PlainAgent._stream_start,
    "QueryTerminatedEvent": PlainAgent._stream_end,
}
