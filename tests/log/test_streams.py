"""Queues of stream destinations: multiplexing before the answer, and what is collected when."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError, LogFull
from headwater.log.event_sink import FanOut
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import EventFolder
from headwater.log.queue import offline as inspect
from headwater.log.queue.partition_file import partition_paths
from headwater.log.streams import KEPT_EPOCHS, Queues, StreamCursor, identity_of
from headwater.settings import DestinationSettings
from tests.log.event_parts import FullDisk, lines
from tests.log.parts import fill, small


def destination(id: str, mode: str = "stream", *only_keys: str) -> DestinationSettings:
    return DestinationSettings(id=id, type="duckdb", mode=mode, only_keys=only_keys)  # type: ignore[arg-type]


class Answers:
    """The answers that senders got."""

    def __init__(self) -> None:
        self.received: list[tuple[Any, HeadwaterError | None]] = []
        self._grew = threading.Condition()

    def __call__(self, tokens: list[Any], error: HeadwaterError | None) -> None:
        with self._grew:
            self.received += [(token, error) for token in tokens]
            self._grew.notify_all()

    def wait(self, count: int) -> list[tuple[Any, HeadwaterError | None]]:
        with self._grew:
            assert self._grew.wait_for(lambda: len(self.received) >= count, 30)
        return self.received


def kept(folder: Path, id: str) -> list[bytes]:
    return [event.body for event in inspect.export(EventFolder(folder).queue(id))]


def test_events_are_in_every_place_that_wants_them_when_they_are_answered(tmp_path: Path) -> None:
    wanted = [
        destination("all"),
        destination("web", "stream", "web"),
        destination("files", "batch", "web", "app"),
        destination("both", "both", "app"),
    ]
    incoming = Incoming(tmp_path)
    queues = Queues(tmp_path, [each for each in wanted if each.is_stream])
    places = FanOut(incoming, queues, wanted)
    answers = Answers()
    places.append("web", [b"1", b"2"], answers, "a")
    places.append("app", [b"3"], answers, "b")
    places.append("alone", [b"4"], answers, "c")
    assert sorted(answers.wait(3)) == [("a", None), ("b", None), ("c", None)]
    assert sorted(kept(tmp_path, "all")) == [b"1", b"2", b"3", b"4"]
    assert kept(tmp_path, "web") == [b"1", b"2"]
    assert kept(tmp_path, "both") == [b"3"]
    queues.close()
    incoming.close()
    assert sorted(lines(tmp_path)) == [b"1\n", b"2\n", b"3\n"]


def test_events_go_to_the_files_when_no_destination_wants_them(tmp_path: Path) -> None:
    wanted = [destination("web", "stream", "web")]
    incoming, queues = Incoming(tmp_path), Queues(tmp_path, wanted)
    answers = Answers()
    FanOut(incoming, queues, wanted).append("app", [b"1"], answers, "a")
    answers.wait(1)
    queues.close()
    incoming.close()
    assert lines(tmp_path) == [b"1\n"]
    assert kept(tmp_path, "web") == []


def test_the_sender_gets_the_error_once_when_one_store_fails(tmp_path: Path) -> None:
    wanted = [destination("s"), destination("f", "batch")]
    incoming, queues = Incoming(tmp_path, disk=FullDisk(0)), Queues(tmp_path, wanted[:1])
    answers = Answers()
    places = FanOut(incoming, queues, wanted)
    for token in "abc":
        places.append("web", [b"1"], answers, token)
    found = answers.wait(3)
    assert [token for token, _ in sorted(found, key=lambda each: str(each[0]))] == ["a", "b", "c"]
    assert all(isinstance(error, LogFull) for _, error in found)
    queues.close()
    incoming.close()


def test_every_request_is_answered_when_a_store_is_closed_already(tmp_path: Path) -> None:
    wanted = [destination("s"), destination("f", "batch")]
    incoming, queues = Incoming(tmp_path), Queues(tmp_path, wanted[:1])
    queues.close()
    answers = Answers()
    FanOut(incoming, queues, wanted).append("web", [b"1"], answers, "a")
    [(token, error)] = answers.wait(1)
    assert token == "a"
    assert error is not None
    incoming.close()


def test_only_what_is_archived_is_collected_when_the_pipeline_is_slow(tmp_path: Path) -> None:
    queues = Queues(tmp_path, [destination("s")], small(retention_hours=0.0001, retention_bytes=1))
    log = queues.log("s")
    fill(log, 600)
    log.collect()
    before = partition_paths(log.folder)
    assert len(before) > 3  # neither age nor size ever drops an event that is not loaded
    cursor = StreamCursor.load(log.folder, identity_of(log.folder))
    assert (cursor.position, cursor.archived) == (1, 1)
    cursor.advance(601, log.epoch)
    cursor.archived = int(before[2].stem)
    cursor.save(log.folder)
    queues.collect_loaded()
    log.collect()
    assert partition_paths(log.folder)[0] == before[2]
    queues.close()


def test_nothing_is_collected_when_the_cursor_is_about_other_events(tmp_path: Path) -> None:
    queues = Queues(tmp_path, [destination("s")], small())
    log = queues.log("s")
    fill(log, 600)
    cursor = StreamCursor.load(log.folder, identity_of(log.folder))
    cursor.advance(201, log.epoch)
    cursor.advance(601, log.epoch + 1)  # positions of a later copy of this queue
    cursor.archived = 601
    cursor.save(log.folder)
    queues.collect_loaded()
    assert log.stat().readers[0].position == 201
    queues.close()


def test_epochs_that_are_archived_are_forgotten_except_the_last(tmp_path: Path) -> None:
    cursor = StreamCursor(queue="q", position=1, archived=1)
    for epoch in range(1, 300):
        cursor.advance(epoch * 10 + 1, epoch)
    assert len(cursor.epochs) == 300  # none of them is archived
    cursor.archived = cursor.position
    cursor.advance(3000, 300)
    assert (len(cursor.epochs), cursor.epoch_of(2999), cursor.epoch_of(2990)) == (KEPT_EPOCHS + 2, 300, 299)
    assert cursor.epoch_of(10) is None
    cursor.step_back(2500)
    assert (cursor.position, cursor.archived, cursor.epoch_of(2499)) == (2500, 2500, 250)


def test_a_cursor_is_ignored_when_it_belongs_to_another_queue(tmp_path: Path) -> None:
    with_cursor = Queues(tmp_path, [destination("s")])
    folder = with_cursor.log("s").folder
    fill(with_cursor.log("s"), 10)
    StreamCursor(queue="other", position=8, archived=8).save(folder)
    with_cursor.collect_loaded()
    assert with_cursor.log("s").stat().readers[0].position == 1
    assert StreamCursor.load(folder, identity_of(folder)).position == 1
    (folder / "stream" / "cursor.json").write_bytes(b"{torn")
    assert StreamCursor.peek(folder) is None
    assert StreamCursor.load(folder, identity_of(folder)).position == 1
    with_cursor.close()


def test_readers_outside_see_the_end_when_its_record_was_lost(tmp_path: Path) -> None:
    queues = Queues(tmp_path, [destination("s")])
    folder = queues.log("s").folder
    fill(queues.log("s"), 10)
    queues.close()
    name = identity_of(folder)
    with (folder / "tail").open("r+b") as tail:
        tail.write(inspect.tail_line(3))
        os.fsync(tail.fileno())
    Queues(tmp_path, [destination("s")]).close()
    assert inspect.tail_of(folder) == 11
    assert identity_of(folder) == name
