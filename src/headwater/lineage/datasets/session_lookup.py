"""What is asked of the running Spark once, or of its catalog: the place where datasets call the JVM."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headwater.lineage.jvm import compile as jvm
from headwater.lineage.naming.catalogs import Surroundings

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["surroundings_of", "version_and_details"]

logger = logging.getLogger(__name__)


def version_and_details(context: SparkContext) -> tuple[str, dict[str, Any]]:
    """Spark's version, and what never changes about the application."""
    details = {
        "master": context.master,
        "deployMode": context.getConf().get("spark.submit.deployMode", "client"),
        "driverHost": context.getConf().get("spark.driver.host"),
        "uiWebUrl": context.uiWebUrl,
    }
    return str(context.version), details


def surroundings_of(context: SparkContext, *, has_units: bool = True) -> Surroundings:
    """The settings of the application, and lookups in its shared catalog, which need compiled units."""
    conf = dict(context.getConf().getAll())
    try:
        conf |= _session_conf(context)
    except Exception as error:  # no session yet: its settings are read when a catalog is met
        logger.debug("The session's settings are not known yet: %s", error)
    lookup = _Lookup(context) if has_units else None
    return Surroundings(conf, read=lambda: _session_conf(context), lookup=lookup)


def _session_conf(context: SparkContext) -> dict[str, str]:
    session = _default_session(context)
    if session is None:
        return {}
    found: dict[str, str] = {}
    every = session.conf().getAll()
    entries = every.iterator()
    while entries.hasNext():
        pair = entries.next()
        found[str(pair._1())] = str(pair._2())
    for key in ("spark.sql.warehouse.dir", "spark.sql.catalogImplementation"):
        found[key] = str(session.conf().get(key))
    return found


def _default_session(context: SparkContext) -> Any:
    """The JVM's session: in Spark 4 the classic one, before it the only one."""
    from pyspark.sql import SparkSession

    active = SparkSession._instantiatedSession
    return active._jsparkSession if active is not None and active._sc is context else None


class _Lookup:
    """Asks the catalog that all sessions share for one table; "" if it has none."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._method: Any = None

    def __call__(self, database: str, table: str) -> str:
        session = _default_session(self._context)
        if session is None:
            return ""
        gateway: Any = self._context._gateway
        if self._method is None:
            cls = jvm.load(self._context).loader.loadClass(f"{jvm.PACKAGE}.Fields")
            self._method = next(each for each in cls.getMethods() if each.getName() == "lookup")
        arguments = gateway.new_array(gateway.jvm.java.lang.Object, 3)
        arguments[0] = session.sharedState().externalCatalog()
        arguments[1], arguments[2] = database, table
        return str(self._method.invoke(None, arguments) or "")
