"""Writes a data folder with the release of PYTHONPATH, prints what was acknowledged, and is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from headwater.log.files.incoming import Incoming
from headwater.log.queue.log import Log
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.log.streams import Queues, StreamCursor, identity_of
from headwater.settings import DestinationSettings

data_dir = Path(sys.argv[1])
log = Log.open(data_dir / "log")
reader = log.reader("slow")
incoming = Incoming(data_dir / "events")
queues = Queues(data_dir / "events", [DestinationSettings(id="live", type="duckdb", mode="stream")])
rejects = RejectStore(data_dir / "rejects.db", max_bytes=1 << 20)
for n in range(200):
    body = json.dumps({"n": n}).encode()
    log.append_wait([body])
    incoming.append_wait("web", [body])
    queues.log("live").append_wait([body])
    if n == 100:
        incoming.rotate()
reader.finish(range(1, 41), [45])
rejects.add("outlet:slow", [NewReject("no", b'{"n": 44}', position=45, received_at=1.0)])
queue = data_dir / "events" / "queue.dst=live"
StreamCursor(queue=identity_of(queue), position=61, archived=51, rows=60).save(queue)
print("written", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
