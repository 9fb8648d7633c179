"""A process that ingests a log into a graph, to be killed by tests."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from headwater.graph.ingest.follower import LogFollower
from headwater.graph.store.database import GraphDatabase
from headwater.log.queue.log import Log
from headwater.metrics import Metrics


def main(folder: Path) -> None:
    log = Log.open(folder / "log")
    follower = LogFollower(log, GraphDatabase(folder / "graph"), Metrics(), batch_events=10)
    follower.start()
    while follower.lag_events:
        time.sleep(0.01)
    follower.close()
    log.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
