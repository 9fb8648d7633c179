"""The `debug` facet of openlineage-spark: settings, class path, system, plan and memory of a driver."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from headwater import __version__
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets.make import custom
from headwater.lineage.jvm.plan import Node
from headwater.lineage.settings import LineageSettings

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

Event = dict[str, Any]

_CLASSES = (
    "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "org.apache.iceberg.catalog.Catalog",
    "com.google.cloud.spark.bigquery.BigQueryRelation",
)
_SYSTEM = {
    "javaVersion": "java.version",
    "javaVendor": "java.vendor",
    "osArch": "os.arch",
    "osName": "os.name",
    "osVersion": "os.version",
    "userLanguage": "user.language",
    "userTimezone": "user.timezone",
}
_MEMORY = {
    "sparkConfDriverMemory": "spark.driver.memory",
    "sparkConfDriverMemoryOverhead": "spark.driver.memoryOverhead",
    "sparkConfDriverMinMemoryOverhead": "spark.driver.minMemoryOverhead",
    "sparkConfDriverMemoryOverheadFactor": "spark.driver.memoryOverheadFactor",
}
_MIB = 1024 * 1024


class DebugFacet:
    """Adds the facet where it is enabled, or where `debug.smart` finds inputs or outputs missing."""

    def __init__(
        self, settings: LineageSettings, spark_version: str, spark_context: SparkContext | None
    ) -> None:
        self._settings = settings
        self._spark_version = spark_version
        self._context: Any = spark_context
        self._application: dict[str, Any] | None = None

    def add(self, event: Event, objects: Iterable[object], conf: Mapping[str, str]) -> None:
        """Add the facet to the event, if it is wanted."""
        query = next((each for each in objects if isinstance(each, QueryExecution)), None)
        is_enabled = "debug" not in self._settings.disabled_facets
        if self._context is None or not (is_enabled or self._is_missed(event, query)):
            return
        try:
            made = self._made(query, conf)
        except Exception as error:  # a JVM that ends, a class of another release
            logger.debug("The debug facet was not made: %s", error)
            return
        kilobytes = -(-len(orjson.dumps(made)) // 1024)
        if kilobytes > self._settings.debug_kilobytes:
            made = {"logs": [f"Skipping debug facet due to payload size: {kilobytes} kilobytes"]}
        event["run"]["facets"]["debug"] = custom("run", **made)

    def _is_missed(self, event: Event, query: QueryExecution | None) -> bool:
        """Whether `debug.smart` wants it, though it is disabled."""
        if not self._settings.debug_smart or query is None or event["eventType"] != "COMPLETE":
            return False
        is_any = self._settings.debug_smart_mode == "any-missing"
        return not event["outputs"] or (is_any and not event["inputs"])

    def _made(self, query: QueryExecution | None, conf: Mapping[str, str]) -> dict[str, Any]:
        if self._application is None:
            self._application = self._of_application(conf)
        runtime = self._context._jvm.java.lang.Runtime.getRuntime()
        memory = {name: conf[key] for name, key in _MEMORY.items() if key in conf}
        sizes = {
            "freeMemory": int(runtime.freeMemory()) // _MIB,
            "totalMemory": int(runtime.totalMemory()) // _MIB,
            "maxMemory": int(runtime.maxMemory()) // _MIB,
        }
        made = {**self._application, "memory": memory | sizes, "logs": []}
        if query is not None and query.plan is not None:
            made["logicalPlan"] = {"nodes": _nodes(query.plan.nodes)}
        return made

    def _of_application(self, conf: Mapping[str, str]) -> dict[str, Any]:
        jvm = self._context._jvm
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jars = str(self._context._jsc.sc().listJars().mkString("\n"))
        return {
            "config": {
                "extraListeners": conf.get("spark.extraListeners"),
                "openLineageConfig": self._settings.properties,
                "catalogClass": conf.get("spark.sql.catalog.spark_catalog"),
                "extensions": conf.get("spark.sql.extensions"),
            },
            "classpath": {
                "openLineageVersion": __version__,
                "sparkVersion": self._spark_version,
                "scalaVersion": str(jvm.scala.util.Properties.versionNumberString()),
                "jars": jars.splitlines(),
                "classDetails": [_class(loader, name) for name in _CLASSES],
            },
            "system": {
                "sparkDeployMode": str(self._context._jsc.sc().deployMode()),
                **{name: str(jvm.java.lang.System.getProperty(key)) for name, key in _SYSTEM.items()},
            },
        }


def _class(loader: Any, name: str) -> dict[str, Any]:
    """Whether a class is on the class path, and its package's version."""
    if loader.getResource(f"{name.replace('.', '/')}.class") is None:
        return {"className": name, "isOnClasspath": False}
    package = loader.loadClass(name).getPackage()
    version = None if package is None else package.getImplementationVersion()
    return {"className": name, "isOnClasspath": True, "packageVersion": version}


def _nodes(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """The plan from its root, as names of classes and their places, without any text of the query's."""
    names = [f"{node.cls.rpartition('.')[2]}@{number}" for number, node in enumerate(nodes)]
    return [
        {"id": names[number], "desc": node.cls, "children": [names[kid] for kid in node.kids]}
        for number, node in reversed(list(enumerate(nodes)))
    ]
