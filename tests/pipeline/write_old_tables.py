"""Writes files, tables and a graph with the release of PYTHONPATH; is killed between ledger and status."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.destinations.base import Load, load_destination
from headwater.destinations.column_types import Kind
from headwater.destinations.table import ROW, Column, table_of
from headwater.graph.store.database import GraphDatabase
from headwater.log.files.file_status import FileStatus
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import unprocessed
from headwater.pipeline.load import load_id
from headwater.settings import DestinationSettings

data_dir = Path(sys.argv[1])
events = data_dir / "events"
for part in range(3):
    incoming = Incoming(events)
    incoming.append_wait("web", [json.dumps({"n": n}).encode() for n in range(part * 10, part * 10 + 10)])
    incoming.close()
database = {"path": str(data_dir / "dwh.duckdb")}
destination = load_destination(DestinationSettings(id="dwh", type="duckdb", options=database))
destination.connect()
table = destination.patch(table_of("events", [Column("n", Kind.INT64)]))
for part, file in enumerate(unprocessed(events)[:2]):
    path = data_dir / "staged.parquet"
    pq.write_table(pa.table({ROW: list(range(10)), "n": list(range(part * 10, part * 10 + 10))}), path)
    id = load_id(file.identity(), "dwh", "events")
    destination.load(Load(id=id, table=table, files=[str(path)], rows=10))
    if part == 0:  # the second is in the ledger alone
        status = FileStatus.load(file)
        status.mark("dwh", "events", True, rows=10)
        status.count("dwh", events=10, skipped=0, rejected=0)
        status.save()
destination.close()
graph = GraphDatabase(data_dir / "graph")
for n in range(3):
    event = {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-16T10:00:00Z",
        "producer": "https://example.com",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": f"01941f29-7c00-7743-867b-1e1b4bd4ac2{n}"},
        "job": {"namespace": "old", "name": f"job{n}"},
        "outputs": [{"namespace": "old", "name": f"out{n}"}],
    }
    graph.ingest([json.dumps(event).encode()], n + 2)
print("written", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
