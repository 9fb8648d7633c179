"""The requests of the `dataset` outlet are those of dataset-go, which is built here from its own module.

Both get the same events and send them to the same server, which keeps the decoded requests. They are compared
by session, event by event and field by field. What differs on purpose: dataset-go leaves out a `sev` of 0
(which the receiver then takes for 3), sends nested attributes as they are, and gives an absent and an empty
field of `group_by` one session; we do not.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from bench.delivery import build_peer

from headwater.delivery import Client
from headwater.settings import OutletSettings
from headwater.testing import DataSetServer, Request
from tests.parts.cache import Missing

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

Event = dict[str, Any]
Sent = dict[str, list[Event]]  # by session info, what each event says, with its thread and log in place

TEXTS = (
    "plain",
    "Grüße 日本語 \U0001f600",
    'quote " and \\',
    "line\nbreak\ttab",
    "<html> & more",
    "\u2028",
    "x" * 5000,
)
HOSTS: tuple[Event, ...] = (
    {},
    {"serverHost": "own"},
    {"__origServerHost": "first"},
    {"serverHost": "own", "__origServerHost": "first"},
)


@pytest.fixture(scope="module")
def peer() -> Path:
    try:
        return build_peer()
    except Missing as missing:
        pytest.skip(str(missing))


class Case:
    """One event, as either side takes it."""

    def __init__(self, chance: random.Random, number: int) -> None:
        self.attrs: Event = {"number": number, "text": chance.choice(TEXTS), "none": None}
        self.attrs |= {"float": chance.random(), "flag": chance.random() < 0.5, "big": chance.getrandbits(50)}
        self.attrs |= chance.choice(HOSTS)
        if chance.random() < 0.7:
            self.attrs["app"] = chance.choice(["web", "shop", "Grüße"])
        if chance.random() < 0.5:
            self.attrs["logfile"] = chance.choice(["/var/log/a", "/var/log/b"])
        self.ts = str(1_767_323_045_000_000_000 + chance.getrandbits(40))
        self.sev = chance.randrange(7)
        self.thread = chance.choice([None, "main", "worker", "Grüße"])
        self.log: Event = {"source": chance.choice("abc"), "parser": chance.choice(["json", "text"])}

    def for_dataset_go(self) -> Event:
        event: Event = {"ts": self.ts, "sev": self.sev, "attrs": self.attrs}
        bundle: Event = {"event": event, "log": {"attrs": self.log}}
        event["log"] = bundle["log"]["id"] = "-".join(self.log.values())
        if self.thread is not None:
            event["thread"] = f"id of {self.thread}"
            bundle["thread"] = {"id": f"id of {self.thread}", "name": self.thread}
        return bundle

    def for_headwater(self) -> Event:
        thread = {} if self.thread is None else {"thread": self.thread}
        return {**self.attrs, "ts": self.ts, "sev": self.sev, **self.log, **thread}


def captured(send: Callable[[str], None]) -> tuple[list[Event], list[Request]]:
    """The decoded bodies and the requests that `send` makes."""
    requests: list[Request] = []
    with DataSetServer(token="bench") as server:
        server.answer_always(lambda request: requests.append(request))
        send(server.url)
        return server.bodies, requests


def by_session(bodies: list[Event]) -> Sent:
    sent: Sent = {}
    for body in bodies:
        threads = {thread["id"]: thread["name"] for thread in body.get("threads", [])}
        logs = {log["id"]: log["attrs"] for log in body.get("logs", [])}
        said = sent.setdefault(orjson.dumps(body["sessionInfo"], option=orjson.OPT_SORT_KEYS).decode(), [])
        for event in body["events"]:
            assert event.keys() <= {"ts", "sev", "thread", "log", "attrs"}
            resolved = event | {"sev": event.get("sev", 0), "log": logs[event["log"]]}
            if "thread" in event:
                resolved["thread"] = threads[event["thread"]]
            said.append(resolved)
    return sent


def send_by_dataset_go(peer: Path, file: Path, cases: list[Case], url: str) -> None:
    file.write_bytes(b"".join(orjson.dumps(case.for_dataset_go()) + b"\n" for case in cases))
    options = ["-group-by", "app", "-server-host", "ours", "-user-agent-suffix", "otel/1;eu", "-bundles"]
    timing = ["-max-lifetime", "200ms", "-shutdown-timeout", "30s"]
    done = subprocess.run(
        [peer, "-file", file, "-endpoint", url, *options, *timing], capture_output=True, text=True, check=True
    )
    figures = orjson.loads(done.stdout)
    assert (figures["events"], figures["dropped"], figures["error"]) == (len(cases), 0, "")


def send_by_headwater(cases: list[Case], url: str) -> None:
    settings = OutletSettings(
        name="dataset",
        type="dataset",
        group_by=("/app",),
        batch_age_seconds=0.2,
        options={
            "url": url,
            "api_key": "bench",
            "server_host": "ours",
            "time": "/ts",
            "severity": "/sev",
            "thread": "/thread",
            "log_fields": ["/source", "/parser"],
            "user_agent_suffix": "otel/1;eu",
        },
    )
    with Client(settings) as client:
        client.add_events([case.for_headwater() for case in cases])
        assert client.flush(60)


@pytest.mark.parametrize("seed", range(3))
def test_requests_are_those_of_dataset_go_when_both_get_the_same_events(
    peer: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    cases = [Case(chance, number) for number in range(300)]
    theirs, their_requests = captured(lambda url: send_by_dataset_go(peer, tmp_path / "events", cases, url))
    ours, our_requests = captured(lambda url: send_by_headwater(cases, url))
    assert by_session(ours) == by_session(theirs)
    assert sum(map(len, by_session(ours).values())) == len(cases)
    for bodies in (theirs, ours):
        assert {body["token"] for body in bodies} == {"bench"}
        fields = {"token", "session", "sessionInfo", "events", "logs"}
        assert all(body.keys() - {"threads"} == fields for body in bodies)
        sessions = {body["session"] for body in bodies}
        assert len(sessions) == len(by_session(bodies))
        assert all(re.fullmatch(r"[0-9a-f-]{32,36}-[0-9a-f]{32}", session) for session in sessions)
    for request in (*their_requests, *our_requests):
        assert (request.method, request.path) == ("POST", "/api/addEvents")
        assert request.headers["content-type"] == "application/json"
        assert request.headers["content-encoding"] == "gzip"
        assert request.headers["user-agent"].endswith(";otel/1;eu")
        assert "authorization" not in request.headers
