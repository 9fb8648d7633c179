"""Datasets of RDDs: what the sources of a chain read, and what a job writes through Hadoop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.lineage.datasets import connectors as connections
from headwater.lineage.datasets.dataset import Found, above_glob, place
from headwater.lineage.extend.builders import (
    AbstractInputDatasetBuilder,
    AbstractOutputDatasetBuilder,
    InputDatasetBuilder,
    OutputDatasetBuilder,
)
from headwater.lineage.extend.spark_objects import (
    JDBCRDD,
    RDD,
    ActiveJob,
    FileScanRDD,
    HadoopRDD,
    NewHadoopRDD,
)
from headwater.lineage.naming.names import path_id

__all__ = ["JobOutputs", "RddInputs", "datasets_of_chain"]

_FORMATS = {"TextInputFormat": "text", "TextOutputFormat": "text", "SequenceFileInputFormat": "sequencefile"}
_FORMATS |= {"SequenceFileOutputFormat": "sequencefile", "WholeTextFileInputFormat": "text"}


def datasets_of_chain(chain: Iterable[Mapping[str, Any]]) -> list[Found]:
    """What the RDDs of a chain read, as Rdds.java tells it."""
    found: dict[Any, Found] = {}
    for each in chain:
        kind = str(each.get("cls", "")).rpartition(".")[2]
        for one in _read(kind, each):
            found.setdefault(one.id, one)
    return list(found.values())


def _read(kind: str, rdd: Mapping[str, Any]) -> list[Found]:
    if kind == "JDBCRDD" and rdd.get("url"):
        return connections.jdbc(str(rdd["url"]), {"dbtable": rdd.get("table", "")})
    return [place(path_id(above_glob(str(path))), _format(rdd)) for path in rdd.get("paths") or ()]


def _format(described: Mapping[str, Any]) -> str:
    return _FORMATS.get(str(described.get("format", "")).rpartition(".")[2], "")


class RddInputs(AbstractInputDatasetBuilder[HadoopRDD | NewHadoopRDD | FileScanRDD | JDBCRDD]):
    """Inputs of RDD programs. A query's own RDDs are left to its plan, which knows tables by their names."""

    def is_defined_at(self, event: object) -> bool:
        return super().is_defined_at(event) and not (isinstance(event, RDD) and event.is_of_query)

    def apply(self, event: RDD) -> list[InputDatasetBuilder]:
        described = {"paths": event.paths, **event.details}
        kind = type(event).__name__
        return [InputDatasetBuilder(*one.id, one.facets) for one in _read(kind, described)]


class JobOutputs(AbstractOutputDatasetBuilder[ActiveJob]):
    """Outputs of RDD programs: `saveAsTextFile` and whatever else ends in Hadoop's API."""

    def apply(self, event: ActiveJob) -> list[OutputDatasetBuilder]:
        if event.execution_id is not None:
            return []
        found = [
            place(path_id(str(each["path"])), _format(each)) for each in event.outputs if each.get("path")
        ]
        return [OutputDatasetBuilder(*one.id, one.facets) for one in found]
