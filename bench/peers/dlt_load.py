"""dlt loads a file of events: run by the benchmark with the Python of dlt's own venv, nothing else.

    python dlt_load.py FILE duckdb:PATH|postgresql://…

Given what makes it fast here: Parquet for DuckDB and CSV for Postgres instead of INSERT statements, two
workers, and files of 50,000 rows so that both have work. Arrays stay JSON, as with us, instead of becoming
tables of their own, which would take it longer.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
os.environ["NORMALIZE__WORKERS"] = "2"
os.environ["LOAD__WORKERS"] = "2"
os.environ["DATA_WRITER__FILE_MAX_ITEMS"] = "50000"

ARRAYS = {"items": {"data_type": "json"}, "properties__tags": {"data_type": "json"}}


def main(file: str, target: str) -> None:
    dlt: Any = importlib.import_module("dlt")  # not installed where this is type-checked

    def events() -> Iterator[list[Any]]:
        batch: list[Any] = []
        with open(file, "rb") as lines:
            for line in lines:
                batch.append(json.loads(line))
                if len(batch) == 5_000:
                    yield batch
                    batch = []
        yield batch

    is_duckdb = target.startswith("duckdb:")
    destination = (
        dlt.destinations.duckdb(target.partition(":")[2])
        if is_duckdb
        else dlt.destinations.postgres(credentials=target)
    )
    pipeline = dlt.pipeline(
        "bench", destination=destination, dataset_name="bench", pipelines_dir=os.environ["DLT_FOLDER"]
    )
    resource = dlt.resource(events, name="events", columns=ARRAYS)
    pipeline.run(resource, loader_file_format="parquet" if is_duckdb else "csv")
    with pipeline.sql_client() as client:
        [(rows,)] = client.execute_sql("SELECT count(*) FROM events")
        columns = len(pipeline.default_schema.get_table_columns("events"))
    sys.stdout.write(json.dumps({"rows": rows, "columns": columns}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
