"""`headwater backup` and `restore`, cold and hot: each event that was acknowledged before is in the copy."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.cli.serve import Server
from headwater.errors import HeadwaterError
from headwater.log.backup import MANIFEST, back_up, restore
from headwater.log.files.checked_lines import LineReader
from headwater.log.files.incoming import Incoming, finish_interrupted
from headwater.log.files.layout import unprocessed
from headwater.log.queue.log import Log
from headwater.log.queue.offline import export, stat, verify
from headwater.log.rejects.store import NewReject, RejectReader, RejectStore
from headwater.log.streams import Queues
from headwater.settings import DestinationSettings, Settings
from tests.log.parts import small

LIVE = DestinationSettings(id="live", type="duckdb", mode="stream")


class Writers:
    """Everything that a server writes, by a thread that never stops; and what was acknowledged."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir, self.events_dir = data_dir, data_dir / "events"
        self.log = Log.open(data_dir / "log", small(partition_bytes=16_384))
        self.incoming = Incoming(self.events_dir, destinations=[])
        self.queues = Queues(self.events_dir, [LIVE], small(partition_bytes=16_384))
        self.rejects = RejectStore(data_dir / "rejects.db", max_bytes=1 << 20)
        self.acknowledged = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def take(self) -> None:
        body = json.dumps({"n": self.acknowledged, "pad": "x" * 200}).encode()
        self.log.append_wait([body])
        self.incoming.append_wait("web", [body])
        self.queues.log("live").append_wait([body])
        if self.acknowledged % 10 == 0:
            self.rejects.add("gateway", [NewReject("no", body)])
        self.acknowledged += 1

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.take()

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        for part in (self.log, self.incoming, self.queues, self.rejects):
            part.close()


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    made = Writers(tmp_path / "data")
    for _ in range(80):
        made.take()
    yield made
    made.close()


def numbers(bodies: Any) -> list[int]:
    return [json.loads(body)["n"] for body in bodies]


@pytest.mark.parametrize("is_hot", [True, False], ids=["hot", "cold"])
def test_everything_acknowledged_is_there_once_when_a_backup_is_restored(
    writers: Writers, tmp_path: Path, is_hot: bool
) -> None:
    if is_hot:
        writers.start()
    else:
        writers.close()
    before = writers.acknowledged
    assert before >= 80
    back_up(writers.data_dir, writers.events_dir, tmp_path / "backup")
    restored = tmp_path / "restored"
    restore(tmp_path / "backup", restored, restored / "events")
    finish_interrupted(restored / "events")
    files = [
        n
        for file in unprocessed(restored / "events")
        for n in numbers(x.event for x in LineReader(file.path))
    ]
    found = {
        "log": numbers(event.body for event in export(restored / "log")),
        "queue": numbers(event.body for event in export(restored / "events" / "queue.dst=live")),
        "files": files,
    }
    for name, each in found.items():
        assert each == list(range(len(each))), name
        assert len(each) >= before, name
    with_rejects = RejectReader(restored / "rejects.db")
    assert with_rejects.counts()["gateway"] >= before // 10
    with_rejects.close()
    assert verify(restored / "log") == []
    log = Log.open(restored / "log", small())
    log.append_wait([b"{}"])
    log.close()


def test_events_dir_is_part_of_the_backup_when_it_lies_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.log").write_text("1")
    (tmp_path / "data" / "last-start.json").write_text("2")
    back_up(tmp_path / "data", tmp_path / "elsewhere", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new", tmp_path / "new-events")
    assert (tmp_path / "new-events" / "x.log").read_text() == "1"
    assert (tmp_path / "new" / "last-start.json").read_text() == "2"


def test_nothing_is_overwritten_when_a_folder_is_in_use(writers: Writers, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    back_up(writers.data_dir, writers.events_dir, backup, with_archive=False)
    with pytest.raises(HeadwaterError, match="is there already"):
        back_up(writers.data_dir, writers.events_dir, backup)
    with pytest.raises(HeadwaterError, match="is in the data folder"):
        back_up(writers.data_dir, writers.events_dir, writers.data_dir / "backup")
    with pytest.raises(HeadwaterError, match="does not exist"):
        back_up(tmp_path / "nothing", tmp_path / "nothing" / "events", tmp_path / "other")
    with pytest.raises(HeadwaterError, match="is not empty") as refused:
        restore(backup, writers.data_dir, writers.events_dir)
    assert f"mv {writers.data_dir} {writers.data_dir}.old" in refused.value.hint


@pytest.mark.parametrize("damage", ["a byte", "a file", "the manifest", "no manifest"])
def test_nothing_is_restored_when_a_backup_is_damaged(writers: Writers, tmp_path: Path, damage: str) -> None:
    backup = tmp_path / "backup"
    made = back_up(writers.data_dir, writers.events_dir, backup)
    victim = backup / made.files[-1].path
    if damage == "a byte":
        victim.write_bytes(victim.read_bytes()[:-1] + b"!")
    elif damage == "a file":
        victim.unlink()
    elif damage == "the manifest":
        (backup / MANIFEST).write_text("{}")
    else:
        (backup / MANIFEST).unlink()
    with pytest.raises(HeadwaterError):
        restore(backup, tmp_path / "new", tmp_path / "new" / "events")
    assert not (tmp_path / "new").exists()


def test_a_server_refuses_when_a_restore_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "data" / "restoring").mkdir(parents=True)
    settings = msgspec.convert({"data_dir": str(tmp_path / "data")}, Settings)
    with pytest.raises(HeadwaterError, match="in part only") as refused:
        Server(settings).compose()
    assert "headwater restore BACKUP" in refused.value.hint


def test_a_reader_is_where_it_was_when_the_copy_was_made(writers: Writers, tmp_path: Path) -> None:
    writers.log.reader("slow").finish(range(1, 51))
    back_up(writers.data_dir, writers.events_dir, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new", tmp_path / "new" / "events")
    [reader] = stat(tmp_path / "new" / "log").readers
    assert (reader.name, reader.position, reader.lag_events) == ("slow", 51, 30)
