"""A stream in a folder, for tests: a queue that events are put into, and a look at what became of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.log.files.layout import EventFolder
from headwater.log.streams import Queues, StreamCursor
from headwater.pipeline.stream.streams import Streams
from headwater.settings import Settings
from tests.pipeline.rig import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_SECONDS = 300.0


def until(condition: Callable[[], bool], what: str = "it") -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)


class StreamRig(Rig):
    """Queues of the gateway's side and streams of the pipeline's, in one process."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.queues: Queues | None = None

    def __exit__(self, *_: object) -> None:
        self.stop_gateway()
        super().__exit__()

    def stop_gateway(self) -> None:
        if self.queues is not None:
            self.queues.close()
            self.queues = None

    def stream_settings(self, *destinations: Mapping[str, Any], **more: Any) -> Settings:
        given = [{"mode": "stream"} | dict(each) for each in destinations or ({},)]
        pipeline = {"stream": {"trigger_seconds": 0.05, "max_retry_seconds": 0.5}}
        return self.settings(*given, **({"pipeline": pipeline} | more))

    def put(self, settings: Settings, *events: Any, id: str = "dwh") -> int:
        """Append events to a queue in one commit; the position after the last."""
        if self.queues is None:
            streams = [each for each in settings.destinations if each.is_stream]
            self.queues = Queues(settings.events_dir, streams, collect_seconds=0.05)
        log = self.queues.log(id)
        bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in events]
        return log.append_wait(bodies) + len(bodies)

    def cursor(self, id: str = "dwh") -> StreamCursor:
        found = StreamCursor.peek(EventFolder(self.folder / "events").queue(id))
        return found or StreamCursor(queue="", position=1, archived=1)

    def stream(self, settings: Settings) -> Streams:
        return Streams(settings, self.spark)

    def drained(self, settings: Settings, *events: Any) -> StreamCursor:
        """Put events into the queue of `dwh`, stream until they are done, and stop."""
        end = self.put(settings, *events)
        with self.stream(settings):
            until(lambda: self.cursor().position >= end, "the end of the queue")
        return self.cursor()
