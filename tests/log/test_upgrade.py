"""Data of a release from before, whose server was killed: the upgrade loses and doubles nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from headwater.log.files.checked_lines import LineReader
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import unprocessed
from headwater.log.queue.log import Log
from headwater.log.queue.offline import export, stat, verify
from headwater.log.rejects.store import RejectStore
from headwater.log.schema_versions import other_versions
from headwater.log.streams import Queues, StreamCursor, agreed_position, identity_of
from headwater.settings import DestinationSettings
from tests.log.parts import read_all
from tests.support.old_release import write_with_old_release

WRITER = Path(__file__).with_name("write_old_data.py")
LIVE = DestinationSettings(id="live", type="duckdb", mode="stream")
# Opens everything with this release, appends one event to each, and is killed.
REOPEN = """
import os, signal, sys
from pathlib import Path
from headwater.log.files.incoming import Incoming
from headwater.log.queue.log import Log
from headwater.log.rejects.store import RejectStore
from headwater.log.streams import Queues
from headwater.settings import DestinationSettings
data_dir, body = Path(sys.argv[1]), sys.argv[2].encode()
log = Log.open(data_dir / "log")
live = DestinationSettings(id="live", type="duckdb", mode="stream")
incoming = Incoming(data_dir / "events", destinations=[live])
queues = Queues(data_dir / "events", [live])
RejectStore(data_dir / "rejects.db", max_bytes=1 << 20)
log.append_wait([body])
incoming.append_wait("web", [body])
queues.log("live").append_wait([body])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The data folder that a server of the release before left when it was killed."""
    return write_with_old_release(WRITER, tmp_path)


def numbers(bodies: Iterable[bytes]) -> list[int]:
    return [json.loads(body)["n"] for body in bodies]


@pytest.mark.long
def test_everything_is_there_once_when_the_release_before_wrote_it_and_both_are_killed(old: Path) -> None:
    events, queue = old / "events", old / "events" / "queue.dst=live"
    migrated = {each.path.name for each in other_versions(old, events) if not each.is_newer}
    assert {"index.db", "rejects.db"} <= migrated  # as `check` names them, before it happens
    for n in (200, 201):
        command = [sys.executable, "-c", REOPEN, str(old), json.dumps({"n": n})]
        assert subprocess.run(command, check=False).returncode == -9
    assert [each for each in other_versions(old, events) if each.path.suffix == ".db"] == []
    log = Log.open(old / "log")
    incoming = Incoming(events, destinations=[LIVE])
    queues = Queues(events, [LIVE])
    rejects = RejectStore(old / "rejects.db", max_bytes=1 << 20)
    every = list(range(202))
    assert numbers(event.body for event in export(old / "log")) == every
    assert numbers(event.body for event in export(queue)) == every
    files = [line.event for file in unprocessed(events) for line in LineReader(file.path)]
    assert numbers(files) == every
    [reader] = stat(old / "log").readers
    assert (reader.position, reader.delivered, reader.rejected) == (41, 40, 1)
    left = numbers(event.body for event in read_all(log.reader("slow")))
    assert left == [n for n in range(40, 202) if n != 44]
    cursor = StreamCursor.load(queue, identity_of(queue))
    assert (cursor.position, cursor.rows) == (61, 60)
    assert agreed_position(queue, cursor, cursor.position) == 61
    [reject] = rejects.list()
    assert (reject.stage, reject.position, reject.is_damaged) == ("outlet:slow", 45, False)
    for part in (log, incoming, queues, rejects):
        part.close()
    assert verify(old / "log") == verify(queue) == []
