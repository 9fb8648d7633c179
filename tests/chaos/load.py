"""Numbered events, and the senders that record which of them were acknowledged."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from typing import Any

__all__ = ["QUICK", "TABLES", "TEMPLATE", "TOKEN", "BulkSender", "EventSender", "Id", "event", "is_poison"]

TEMPLATE = "{{ event_type }}{% if poison is defined %}{{ poison | date('%Y') }}{% endif %}"
TABLES = ("clicks", "views")
TOKEN = {"id": "web", "server_secret": "web-server"}
PAUSE_SECONDS = 0.05  # between two requests of a sender, which leaves CPU for the other processes
BULK = 50  # events of a request
# The JVM compiles with its quick compiler only: these processes die before the other one pays.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

Id = tuple[int, int]  # sender and number


def event(sender: int, number: int) -> dict[str, Any]:
    """The event of an id: always the same, with a field whose type drifts and one that comes and goes."""
    chance = random.Random(f"{sender}/{number}")
    found: dict[str, Any] = {
        "event_type": TABLES[number % 2],
        "sender": sender,
        "number": number,
        "text": chance.choice(["plain", "it's", 'a "quote"', "líne\nbreak", "\\", "日本", "--;"]) * 3,
        "amount": number / 4,
        "nested": {"flag": number % 3 == 0, "list": [number, "x"]},
        "drift": chance.choice([number, number / 8, str(number), number % 2 == 0]),
    }
    if number % 11 == 0:
        found[f"field_{number % 5}"] = {"deep": number}
    if is_poison(number):
        found["poison"] = "no time"
    return found


def is_poison(number: int) -> bool:
    """Whether its table's name cannot be evaluated, so that it becomes a reject."""
    return number % 50 == 7


class EventSender(threading.Thread):
    """One event after the other; the numbers go on over the server's deaths, an event is sent once."""

    def __init__(self, name: int, port: int) -> None:
        super().__init__(name=f"sender-{name}", daemon=True)
        self._sender = name
        self._port = port
        self.sent = 0
        self.acknowledged: list[Id] = []
        self.paused = False
        self.stopping = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while not self.stopping.wait(PAUSE_SECONDS):
            if self.paused:
                continue
            number = self.sent
            try:
                body = json.dumps(event(self._sender, number))
                self.sent += 1
                connection.request("POST", "/api/v1/s2s/event?token=web-server", body)
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    self.acknowledged.append((self._sender, number))
            except (OSError, http.client.HTTPException):
                connection.close()
                self.stopping.wait(0.1)
        connection.close()


class BulkSender:
    """Sends numbered events in bulk; one request at a time, each event once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent = 0
        self.acknowledged: set[Id] = set()

    def send(self, count: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        for start in range(self.sent, self.sent + count, BULK):
            numbers = range(start, min(start + BULK, self.sent + count))
            body = "\n".join(json.dumps(event(0, number)) for number in numbers)
            try:
                connection.request("POST", "/api/v1/events/bulk?token=web-server", body)
                answer = connection.getresponse()
                content = json.loads(answer.read())
                if answer.status == 200 and content["accepted"] == len(numbers):
                    self.acknowledged |= {(0, number) for number in numbers}
            except (OSError, http.client.HTTPException):
                connection.close()
                time.sleep(0.2)
        connection.close()
        self.sent += count
