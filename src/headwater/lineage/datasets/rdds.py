"""RDD programs: the files and tables that chains read, and the files that jobs write through Hadoop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.lineage.datasets import connectors
from headwater.lineage.extend.builders import (
    AbstractInputDatasetBuilder,
    AbstractOutputDatasetBuilder,
    DatasetBuilder,
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
from headwater.lineage.facets.dataset import file_dataset
from headwater.lineage.naming.names import DatasetId, folder_of_glob

_FORMATS = {"TextInputFormat": "text", "TextOutputFormat": "text", "SequenceFileInputFormat": "sequencefile"}
_FORMATS |= {"SequenceFileOutputFormat": "sequencefile", "WholeTextFileInputFormat": "text"}


def datasets_of_chain(chain: Iterable[Mapping[str, Any]]) -> list[DatasetBuilder]:
    """The datasets that the RDDs of a chain read, each once."""
    found: dict[DatasetId, DatasetBuilder] = {}
    for each in chain:
        kind = str(each.get("cls", "")).rpartition(".")[2]
        for one in _read(kind, each):
            found.setdefault(one.id, one)
    return list(found.values())


def _read(kind: str, rdd: Mapping[str, Any]) -> list[DatasetBuilder]:
    if kind == "JDBCRDD" and rdd.get("url"):
        return connectors.jdbc(str(rdd["url"]), {"dbtable": rdd.get("table", "")})
    return [file_dataset(folder_of_glob(str(path)), _format(rdd)) for path in rdd.get("paths") or ()]


def _format(described: Mapping[str, Any]) -> str:
    return _FORMATS.get(str(described.get("format", "")).rpartition(".")[2], "")


class RddInputs(AbstractInputDatasetBuilder[HadoopRDD | NewHadoopRDD | FileScanRDD | JDBCRDD]):
    """Inputs of RDD programs. RDDs that belong to a SQL query are skipped; its plan names the tables."""

    def is_defined_at(self, event: object) -> bool:
        return super().is_defined_at(event) and not (isinstance(event, RDD) and event.is_of_query)

    def apply(self, event: RDD) -> list[InputDatasetBuilder]:
        described = {"paths": event.paths, **event.details}
        kind = type(event).__name__
        return [one.as_input() for one in _read(kind, described)]


class JobOutputs(AbstractOutputDatasetBuilder[ActiveJob]):
    """Outputs of RDD programs: `saveAsTextFile` and other writes through Hadoop's API."""

    def apply(self, event: ActiveJob) -> list[OutputDatasetBuilder]:
        if event.execution_id is not None:
            return []
        return [
            file_dataset(str(each["path"]), _format(each)).as_output()
            for each in event.outputs
            if each.get("path")
        ]
