"""Logs the settings that nothing reads: those of openlineage-spark without a use here, and unknown ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from difflib import get_close_matches

from headwater.lineage.setting_sources import Found, normal

logger = logging.getLogger(__name__)

# Settings of openlineage-spark that Headwater does not use, with the reason.
UNUSED = {
    "circuitBreaker.circuitCheckIntervalInMillis": "the memory is looked at once for each plan",
    "circuitBreaker.valuesReturned": "it is for openlineage-spark's own tests",
    "circuitBreaker.threadCount": "events are built on one thread, which no query waits for",
    "circuitBreaker.queueSize": "headwater.queueEvents and headwater.queueBytes limit the queue",
    "circuitBreaker.blockingTimeInSeconds": "lineage never blocks the job",
    "circuitBreaker.shutdownTimeoutSeconds": "headwater.exitMillis limits the end",
    "debug.metricsDisabled": "the debug facet has no metrics",
    "debug.logPlanAsJson": "plans are not logged",
    "metrics": "lineage keeps no metrics in the driver",
    "vendors": "Iceberg and Delta are always read",
    "testExtensionProvider": "it is for openlineage-spark's own tests; see headwater.extensions",
    "job.namespace": "openlineage-spark does not use it either; see namespace",
    "job.name": "openlineage-spark does not use it either; see appName",
}
# Sections whose keys have names of the user's, and settings that are read without a field.
_OPEN = ("transport.", "dataset.namespaceresolvers.", "job.owners.")
_READ = {"debugfacet", "job.documentation", "facets.disabled", "facets.variables"}
# Sections of openlineage-python in the file and the environment that it shares with Headwater.
_OF_PYTHON = (
    "filters",
    "tags",
    "dataset.reducingenabled",
    "facets.environmentvariables",
    "facets.sourcecodelocation",
)


def warn_of_unused(found: Found, known: Iterable[str]) -> None:
    """Log each key that nothing reads; `known` are the keys that are read."""
    read = {normal(key): key for key in known}
    of_spark = found.keys_of_spark
    for key, written in sorted(found.keys.items()):
        if key in read or key in _READ or key.startswith(_OPEN):
            continue
        if key.startswith("facets.") and key.endswith(".disabled"):
            continue
        if key not in of_spark and key.startswith(_OF_PYTHON):
            continue
        reason = next(
            (why for unused, why in UNUSED.items() if f"{key}.".startswith(f"{normal(unused)}.")), None
        )
        if reason is not None:
            logger.warning("Lineage setting %s is not used: %s.", written, reason)
            continue
        near = [read[each] for each in get_close_matches(key, read, 1, 0.8)]
        logger.warning(
            "Lineage setting %s is not known%s.", written, f"; did you mean {near[0]}" if near else ""
        )
    if "circuitbreaker.gccputhreshold" in found.keys and found.text("circuitBreaker.type") != "javaRuntime":
        logger.warning(
            "Lineage setting circuitBreaker.gcCpuThreshold is not used:"
            " it needs circuitBreaker.type=javaRuntime."
        )
