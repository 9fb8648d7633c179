"""An OpenLineage backend for tests and the demo: keeps the events in the order in which they arrive.

As a process of its own: `python -m headwater.testing.openlineage_server --port 5000 --journal events.ndjson`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson

from headwater.testing.http_server import Answer, Request, ScriptedServer

JSON = {"content-type": "application/json"}
_BATCH = msgspec.json.Decoder(list[msgspec.Raw])


class OpenLineageServer(ScriptedServer):
    """Keeps the bytes of accepted events in `received`.

    `has_batch=False` answers 404 on the batch endpoint, as Marquez does. `refuse(event)` gives the reason why
    an event is bad, or None; a batch with a bad event is answered by event, or with 400 as a whole when
    `judges_events=False`. With a `journal`, events are written there before they are answered, and are
    there again after a kill and a new start.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        has_batch: bool = True,
        refuse: Callable[[Any], str | None] | None = None,
        judges_events: bool = True,
        journal: Path | None = None,
        endpoint: str = "/api/v1/lineage",
    ) -> None:
        super().__init__(host=host, port=port)
        self.has_batch = has_batch
        self.refuse = refuse
        self.judges_events = judges_events
        self.received: list[bytes] = []
        self.singles = 0
        self.batches = 0
        self._endpoint = endpoint
        self._journal = -1
        if journal is not None:
            if journal.exists():
                # a last line without its end was cut off by the kill before its request was answered
                self.received = journal.read_bytes().split(b"\n")[:-1]
                os.truncate(journal, sum(len(line) + 1 for line in self.received))
            self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def events(self) -> list[Any]:
        """The accepted events, parsed."""
        return [orjson.loads(body) for body in list(self.received)]

    def wait_for(self, count: int, timeout_seconds: float = 30.0) -> bool:
        """Wait until this many events are accepted; False after the timeout."""
        return self.wait_until(lambda: len(self.received) >= count, timeout_seconds)

    def stop(self) -> None:
        super().stop()
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1

    async def handle(self, request: Request, answer: Answer | None) -> Answer:
        if answer is not None:
            await asyncio.sleep(answer.delay_seconds)
            if not answer.keeps:
                return answer
        if request.method != "POST":
            return Answer(status=405)
        if request.path == self._endpoint:
            return self._take_one(request.body, answer)
        if request.path == f"{self._endpoint}/batch" and self.has_batch:
            return self._take_many(request.body, answer)
        return Answer(status=404, body=b'{"code":404,"message":"HTTP 404 Not Found"}', headers=JSON)

    def _take_one(self, body: bytes, answer: Answer | None) -> Answer:
        self.singles += 1
        if reason := self._judge(body):
            return Answer(status=400, body=orjson.dumps({"error": reason}), headers=JSON)
        self._keep([body])
        return answer or Answer(status=201)

    def _take_many(self, body: bytes, answer: Answer | None) -> Answer:
        self.batches += 1
        # Cut into events without building them: the receiver of a benchmark must cost less than the sender.
        events = [bytes(event) for event in _BATCH.decode(body)]
        failed = []
        kept = []
        for index, event in enumerate(events):
            if reason := self._judge(event):
                failed.append({"index": index, "reason": reason, "retriable": False})
            else:
                kept.append(event)
        if failed and not self.judges_events:
            return Answer(status=400, body=orjson.dumps({"error": failed[0]["reason"]}), headers=JSON)
        self._keep(kept)
        if answer is not None:
            return answer
        summary = {"received": len(events), "successful": len(kept), "failed": len(failed)}
        status = "partial_success" if failed else "success"
        said = {"status": status, "summary": summary, "failed_events": failed}
        return Answer(body=orjson.dumps(said), headers=JSON)

    def _judge(self, body: bytes) -> str | None:
        return None if self.refuse is None else self.refuse(orjson.loads(body))

    def _keep(self, bodies: list[bytes]) -> None:
        if self._journal >= 0:
            os.write(self._journal, b"".join(body.replace(b"\n", b" ") + b"\n" for body in bodies))
        self.received += bodies


async def _serve(server: OpenLineageServer) -> None:
    stop = asyncio.Event()
    # by hand: a process that was started in the background of a shell has SIGINT ignored
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server.start()
    try:
        await stop.wait()
    finally:
        server.stop()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="An OpenLineage backend that keeps the events it is sent.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("--journal", type=Path, help="append each event to this file before it is answered")
    parser.add_argument("--no-batch", action="store_true", help="have no batch endpoint, like Marquez")
    parser.add_argument("--refuse", metavar="TEXT", help="refuse events that contain this text")
    args = parser.parse_args()
    text = (args.refuse or "").encode()
    server = OpenLineageServer(
        host=args.host,
        port=args.port,
        has_batch=not args.no_batch,
        journal=args.journal,
        refuse=(lambda event: "refused" if text in orjson.dumps(event) else None) if text else None,
    )
    asyncio.run(_serve(server))


if __name__ == "__main__":
    main()
