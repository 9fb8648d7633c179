"""Producers that remember what was acknowledged, and the events they send."""

from __future__ import annotations

import http.client
import json
import secrets
import threading
import uuid
from typing import Any

REFUSED_EVERY = 40  # of these the backend refuses one, so that the rejects have work too


def event(sender: int, number: int) -> dict[str, Any]:
    """A compliant event that compresses badly, so that partitions fill and rotate."""
    schema = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs"
    pad = {
        "_producer": "https://a.example",
        "_schemaURL": f"{schema}/RunFacet",
        "pad": secrets.token_hex(300),
    }
    return {
        "eventType": "RUNNING",
        "eventTime": "2026-01-31T12:00:00Z",
        "run": {"runId": str(uuid.UUID(int=number)), "facets": {"pad": pad}},
        "job": {"namespace": "crash", "name": str(sender)},
        "producer": "https://a.example",
        "schemaURL": f"{schema}/RunEvent",
    }


def identity(found: dict[str, Any]) -> tuple[int, int]:
    """Sender and number of an event."""
    return int(found["job"]["name"]), uuid.UUID(found["run"]["runId"]).int


def is_refused(found: dict[str, Any]) -> str | None:
    return "unlucky number" if identity(found)[1] % REFUSED_EVERY == 7 else None


class Sender:
    """One connection, one event after the other; numbers go on over the server's deaths."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.number = 0
        self.acknowledged: list[int] = []
        self._thread: threading.Thread | None = None

    def start(self, port: int, count: int) -> None:
        self._thread = threading.Thread(target=self._send, args=(port, count))
        self._thread.start()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join()

    def _send(self, port: int, count: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            for _ in range(count):
                self.number += 1
                body = json.dumps(event(self.name, self.number))
                connection.request("POST", "/api/v1/lineage", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    self.acknowledged.append(self.number)
        except (OSError, http.client.HTTPException):
            pass  # the server is dead: this one was not acknowledged, and may or may not be there
        finally:
            connection.close()
