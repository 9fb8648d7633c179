"""Every call that lineage makes into the driver's JVM, typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.lineage.jvm import compile as units
from headwater.lineage.jvm.messages import AppStart, Message, decode
from headwater.lineage.jvm.plan import Expression

if TYPE_CHECKING:
    from pyspark import SparkContext

_ANSWER_EVENT = "SparkListenerSQLExecutionEnd"
_DOCUMENT_CHARS = 1 << 24


class Agent:
    """The compiled agent in the JVM of one application. Methods raise what py4j raises."""

    def __init__(self, context: SparkContext) -> None:
        """Load the agent into the JVM. Raises what Janino or py4j raise if that JVM does not accept it."""
        java_context: Any = context._jsc
        self._context = context
        self._gateway: Any = context._gateway
        self._units = units.load(context)
        self._agent = self._units.new(self._gateway, "Agent", java_context.sc())
        self._methods: dict[str, Any] = {}

    # --- listening

    def attach(self) -> None:
        """Register with Spark's listener bus."""
        self._agent.attach()

    def detach(self, seconds: float) -> None:
        """Leave the listener bus and handle the events that it has already delivered."""
        self._agent.detach(int(seconds * 1000))

    def set_memory_threshold(self, percent: int) -> None:
        """Write no plan while less than `percent` of the driver's heap is free."""
        self._agent.setMemoryThreshold(percent)

    def set_gc_threshold(self, percent: int) -> None:
        """Let memory decide only while the collector of the old generation takes `percent` of the time."""
        self._agent.setGcThreshold(percent)

    def announce_jobs(self) -> None:
        """Send the start of each job of a query at once, instead of with the next message."""
        self._agent.announceJobs(True)

    def include_rdds_of_queries(self) -> None:
        """Also send the RDDs of jobs that belong to SQL queries, for builders of extensions."""
        self._agent.includeRddsOfQueries(True)

    def open_connection(self) -> None:
        """Open this thread's py4j connection and set TCP_NODELAY on it."""
        self._agent.offered()  # a call without arguments, which connects
        self._agent.noDelay(self._gateway.java_gateway_server)

    def poll(self, released: Sequence[int] = ()) -> list[Message | msgspec.DecodeError]:
        """The next messages, after at most 5 s; executions in `released` need not be kept any longer."""
        text = self._agent.poll(",".join(map(str, released))) if released else self._agent.poll()
        return [] if text == "[]" else decode(text)

    def wake(self) -> None:
        """End a poll that waits."""
        self._agent.wake()

    def offered(self) -> int:
        """The number of messages so far, polled or not."""
        return int(self._agent.offered())

    def wait_until_handled(self, seconds: float) -> bool:
        """Wait until the agent has handled all events of Spark so far; return whether it has."""
        return bool(self._agent.waitUntilHandled(int(seconds * 1000)))

    # --- live objects

    def query(self, execution: int) -> Any:
        """The QueryExecution; None once it is released."""
        return self._agent.query(execution)

    def job(self, job: int) -> Any:
        """The ActiveJob; None once it is released."""
        return self._agent.job(job)

    def rdd(self, job: int, rdd: int) -> Any:
        """An RDD of a job by its id."""
        return self._agent.rdd(job, rdd)

    def node(self, execution: int, number: int) -> Any:
        """A node of a query's analyzed plan by its number in the document; None once it is released."""
        nodes = self._agent.nodes(execution)
        return None if nodes is None else nodes[number]

    # --- plans

    def call_node(self, execution: int, number: int, field: str, method: str) -> Any:
        """The result of a lineage method of a node, or of the object in one of its fields."""
        nodes = self._agent.nodes(execution)
        if nodes is None:
            return None
        answer = self._call("LineageNodeCaller", "call", nodes, number, field, method, _ANSWER_EVENT)
        return msgspec.json.decode(str(answer))

    def pickled_source(self, execution: int, number: int) -> bytes | None:
        """The pickled Python data source of a node."""
        nodes = self._agent.nodes(execution)
        found = self._call("LineageNodeCaller", "pythonSource", nodes, number) if nodes is not None else None
        return bytes(found) if found is not None else None

    def pickled_source_class(self, execution: int, name: str) -> bytes | None:
        """The pickled class of the Python data source that the query's session has by this name."""
        query = self._agent.query(execution)
        if query is None:
            return None
        found = self._call("LineageNodeCaller", "pythonSourceClass", query, name)
        return bytes(found) if found is not None else None

    def source_options(self, execution: int, number: int) -> dict[str, str]:
        """The options of a write to a Python data source, secrets included."""
        nodes = self._agent.nodes(execution)
        if nodes is None:
            return {}
        found = msgspec.json.decode(str(self._call("LineageNodeCaller", "pythonOptions", nodes, number)))
        return {str(name): str(value) for name, value in found.items()}

    def write_plan(self, plan: Any, chars: int = _DOCUMENT_CHARS) -> str:
        """The document of any JVM plan."""
        out = self._units.new(self._gateway, "JsonWriter", chars)
        self._call("PlanWriter", "plan", plan, out)
        return str(out.toString())

    def write_expression(self, expression: Any) -> Expression:
        """A JVM expression in the document's form."""
        out = self._units.new(self._gateway, "JsonWriter", _DOCUMENT_CHARS)
        self._call("PlanWriter", "expression", expression, out)
        found: Expression = msgspec.json.decode(str(out.toString()))
        return found

    def lookup_table(self, database: str, table: str) -> str:
        """The document of a table in the session catalog; empty if it has none."""
        session = _session(self._context)
        if session is None:
            return ""
        catalog = session.sharedState().externalCatalog()
        return str(self._call("NodeFields", "lookup", catalog, database, table) or "")

    def database_location(self, database: str) -> str:
        """The location of a database of the session catalog; empty if it has none."""
        session = _session(self._context)
        if session is None:
            return ""
        return str(
            self._call("NodeFields", "location", session.sharedState().externalCatalog(), database) or ""
        )

    def _call(self, unit: str, method: str, *arguments: Any) -> Any:
        key = f"{unit}.{method}"
        if key not in self._methods:
            cls = self._units.loader.loadClass(f"{units.PACKAGE}.{unit}")
            self._methods[key] = next(one for one in cls.getMethods() if one.getName() == method)
        return self._methods[key].invoke(None, units.java_array(self._gateway, arguments))


def application_of(context: SparkContext) -> AppStart:
    """The application's start, which Spark posts before any agent can listen."""
    return AppStart(
        id=str(context.applicationId),
        name=str(context.appName),
        time=int(context.startTime),
        user=str(context.sparkUser()),
    )


def application_details(context: SparkContext) -> dict[str, Any]:
    """Properties of the application that do not change."""
    return {
        "master": context.master,
        "deployMode": context.getConf().get("spark.submit.deployMode", "client"),
        "driverHost": context.getConf().get("spark.driver.host"),
        "uiWebUrl": context.uiWebUrl,
    }


def session_settings(context: SparkContext) -> dict[str, str]:
    """The configuration of the application's session; empty before there is one."""
    session = _session(context)
    if session is None:
        return {}
    found: dict[str, str] = {}
    entries = session.conf().getAll().iterator()
    while entries.hasNext():
        pair = entries.next()
        found[str(pair._1())] = str(pair._2())
    for key in ("spark.sql.warehouse.dir", "spark.sql.catalogImplementation"):
        found[key] = str(session.conf().get(key))
    return found


def system_property(context: SparkContext, name: str) -> str:
    """A property of the driver's JVM; empty if it is not set."""
    jvm: Any = context._jvm
    return str(jvm.java.lang.System.getProperty(name) or "")


def _session(context: SparkContext) -> Any:
    """The JVM's session: in Spark 4 the classic one, before it the only one."""
    from pyspark.sql import SparkSession

    active = SparkSession._instantiatedSession
    return active._jsparkSession if active is not None and active._sc is context else None
