"""Settings that have changed since the last start, with events waiting: `serve` and `check` refuse alike."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.cli.serve import Server
from headwater.clock import ManualClock
from headwater.errors import SettingsError
from headwater.log.files.incoming import Incoming
from headwater.log.queue.log import Log
from headwater.log.queue.offline import stat
from headwater.log.rejects.store import NewReject, RejectReader, RejectStore
from headwater.settings import LogSettings, Settings
from tests.cli.conftest import Headwater

MIB = 1024 * 1024
LOG = {"partition_bytes": MIB, "retention_bytes": 8 * MIB}
OUTLET = {"name": "slow", "type": "file", "options": {"path": "slow.jsonl"}}


class Installation:
    """The settings in a file, and servers that start with them and stop."""

    def __init__(self, folder: Path, headwater: Headwater) -> None:
        self.folder, self._headwater = folder, headwater

    def settings(self, **changes: Any) -> Settings:
        raw = {"data_dir": str(self.folder / "data"), "gateway": {"port": 0}, "log": LOG, "outlets": [OUTLET]}
        (self.folder / "headwater.yml").write_text(json.dumps(raw | changes), encoding="utf-8")
        return msgspec.convert(raw | changes, Settings)

    def start(self, **changes: Any) -> str:
        """Start a server and stop it; why it refuses, or nothing. `check` says the same."""
        settings = self.settings(**changes)
        found = self._headwater("check", "--json")
        problems = [
            each["text"] for each in json.loads(found.stdout)["findings"] if each["level"] == "problem"
        ]

        async def run() -> None:
            server = Server(settings)
            try:
                server.compose()
            finally:
                await server.close()

        try:
            asyncio.run(run())
            refused = []
        except SettingsError as error:
            refused = error.problems
        assert refused == problems
        return "\n".join(refused)

    @property
    def log(self) -> Path:
        return self.folder / "data" / "log"

    def take(self, *bodies: bytes, hours_ago: float = 0.0) -> None:
        """Store events that the outlet has not had; a partition for each call."""
        clock = ManualClock(time.time() - hours_ago * 3600)
        log = Log.open(self.log, msgspec.convert(LOG, LogSettings), clock=clock)
        log.reader("slow")
        log.append_wait(bodies)
        for _ in range(round(2 * hours_ago)):  # the log must witness that time passes
            clock.advance(1800)
            log.collect()
        log.close()

    def waiting(self) -> dict[str, int]:
        return {each.name: each.lag_events for each in stat(self.log).readers}


@pytest.fixture
def at(tmp_path: Path, headwater: Headwater) -> Installation:
    made = Installation(tmp_path, headwater)
    assert made.start() == ""
    return made


def test_the_start_refuses_when_fewer_hours_would_drop_what_waits(
    tmp_path: Path, headwater: Headwater
) -> None:
    at = Installation(tmp_path, headwater)
    at.take(*(b"{}" for _ in range(70)), hours_ago=5)
    at.take(*(b"{}" for _ in range(30)))
    assert at.start() == ""
    lowered = {"log": LOG | {"retention_hours": 2}}
    refused = at.start(**lowered)
    assert "`log.retention_hours` was 168 and is 2: 70 event(s)" in refused
    assert "headwater log trim" in refused
    assert at.waiting() == {"slow": 100}
    at.settings(**lowered)
    assert json.loads(headwater("log", "trim", "-y", "--json").stdout) == {
        "dropped": {"slow": 70},
        "rejects": 0,
    }
    assert at.start(**lowered) == ""
    assert at.waiting() == {"slow": 30}


def test_the_start_refuses_when_fewer_bytes_would_drop_what_waits(at: Installation) -> None:
    noise = random.Random(1)
    for _ in range(4):
        at.take(*(noise.randbytes(300_000).hex().encode() for _ in range(2)))
    lowered = {"log": LOG | {"retention_bytes": 2 * MIB}}
    assert "`log.retention_bytes` was 8.38861e+06 and is 2.09715e+06: 6 event(s)" in at.start(**lowered)
    assert at.waiting() == {"slow": 8}


@pytest.mark.parametrize("lowered", [{"retention_hours": 2}, {"retention_bytes": 2 * MIB}], ids=str)
def test_the_start_refuses_when_lower_limits_would_drop_rejects_of_outlets(
    at: Installation, headwater: Headwater, lowered: dict[str, int]
) -> None:
    path, clock = at.folder / "data" / "rejects.db", ManualClock(time.time() - 5 * 3600)
    store = RejectStore(path, max_bytes=8 * MIB, clock=clock)
    store.add("outlet:slow", [NewReject("no", bytes(MIB), position=n) for n in (1, 2)])
    store.add("gateway", [NewReject("no", bytes(1000))] * 9)
    clock.advance(4 * 3600)
    store.add("outlet:slow", [NewReject("no", bytes(MIB), position=3)])
    store.close()
    limits = {"log": LOG | lowered}
    refused = at.start(**limits)
    assert "2 reject(s) of outlets" in refused
    assert "headwater log trim" in refused
    with closing(RejectReader(path)) as rejects:
        assert rejects.counts() == {"gateway": 9, "outlet:slow": 3}
    at.settings(**limits)
    assert json.loads(headwater("log", "trim", "-y", "--json").stdout)["rejects"] == 2
    with closing(RejectReader(path)) as rejects:
        assert [reject.position for reject in rejects.list("outlet:slow")] == [3]
        assert rejects.counts()["gateway"] == 9
    assert at.start(**limits) == ""


def test_a_reload_refuses_when_an_outlet_with_waiting_events_would_be_gone(
    at: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    at.take(b"{}", b"{}")
    settings, fewer = at.settings(), at.settings(outlets=[])

    async def run() -> None:
        server = Server(settings)
        server.compose()
        try:
            await server._reload_in_turn(lambda: fewer)
            assert list(server._outlets) == ["slow"]
        finally:
            await server.close()

    asyncio.run(run())
    assert "2 event(s) wait for the outlet slow" in caplog.text
    assert "2 event(s) wait for the outlet slow" in at.start(outlets=[])
    assert at.waiting() == {"slow": 2}


def test_the_start_goes_on_when_lower_limits_drop_nothing_that_waits(at: Installation) -> None:
    at.take(b"{}", hours_ago=1)
    assert at.start(log=LOG | {"retention_hours": 2}) == ""
    assert at.waiting() == {"slow": 1}


def test_the_start_refuses_when_an_outlet_with_waiting_events_is_gone(
    at: Installation, headwater: Headwater
) -> None:
    at.take(b"{}", b"{}")
    refused = at.start(outlets=[OUTLET | {"name": "fast"}])
    assert "2 event(s) wait for the outlet slow" in refused
    assert "headwater log rename slow NEW_NAME" in refused
    assert "headwater log forget slow" in refused
    assert headwater("log", "forget", "slow", "-y").exit_code == 0
    assert at.start(outlets=[OUTLET | {"name": "fast"}]) == ""


def test_the_start_goes_on_when_an_outlet_without_waiting_events_is_gone(at: Installation) -> None:
    assert at.start(outlets=[]) == ""
    at.take(b"{}")
    assert at.start(outlets=[]) == ""  # these came later: they are kept, and `status` names the command


def test_position_counts_and_rejects_are_kept_when_an_outlet_is_renamed(
    at: Installation, headwater: Headwater
) -> None:
    at.take(*(b"{}" for _ in range(9)))
    log = Log.open(at.log)
    log.reader("slow").finish([1, 2, 5], [3])
    log.close()
    store = RejectStore(at.folder / "data" / "rejects.db", max_bytes=MIB)
    store.add("outlet:slow", [NewReject("no", b"{}", position=3, received_at=7.0)])
    store.close()
    assert headwater("log", "rename", "none", "fast").exit_code == 1
    assert headwater("log", "rename", "slow", "slow").exit_code == 1
    assert headwater("log", "rename", "slow", "fast", "--json").exit_code == 0
    [reader] = stat(at.log).readers
    found = (reader.name, reader.position, reader.delivered, reader.rejected, reader.lag_events)
    assert found == ("fast", 4, 3, 1, 5)
    with closing(RejectReader(at.folder / "data" / "rejects.db")) as rejects:
        assert rejects.counts() == {"outlet:fast": 1}
        [reject] = rejects.list()
        assert (reject.stage, reject.position, reject.is_damaged) == ("outlet:fast", 3, False)
    log = Log.open(at.log)
    assert [event.position for event in log.reader("fast").read(0, 100, MIB)] == [4, 6, 7, 8, 9]
    log.close()
    assert at.start(outlets=[OUTLET | {"name": "fast"}]) == ""


def test_the_start_refuses_when_events_wait_in_the_folder_of_before(at: Installation) -> None:
    tokens = {"tokens": [{"id": "web", "server_secret": "s"}]}
    assert at.start(**tokens) == ""
    old, new = at.folder / "data" / "events", at.folder / "elsewhere"
    incoming = Incoming(old)
    incoming.append_wait("web", [b"{}"])
    incoming.close()
    moved = tokens | {"events": {"dir": str(new)}}
    refused = at.start(**moved)
    assert f"1 event file(s) wait in {old}" in refused
    assert f"mv {old} {new}" in refused
    old.rename(new)
    assert at.start(**moved) == ""


def test_the_start_compares_nothing_when_what_the_last_one_noted_is_damaged(at: Installation) -> None:
    at.take(b"{}")
    path = at.folder / "data" / "last-start.json"
    path.write_bytes(path.read_bytes().replace(b"slow", b"slaw"))
    assert at.start(outlets=[]) == ""
