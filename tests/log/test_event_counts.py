"""What `headwater status` counts: each event is waiting, loaded, skipped, rejected or archived (G3)."""

from __future__ import annotations

from pathlib import Path

from headwater.clock import ManualClock
from headwater.log.files.archive import archive
from headwater.log.files.event_counts import OpenPair, TokenStat, stat_events
from headwater.log.files.file_status import FileStatus, LastCycle
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import EventFolder, unprocessed
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.streams import Queues, StreamCursor, identity_of, stream_folder
from headwater.settings import DestinationSettings

NOW = 1_800_000_000.0


def write(folder: Path, token: str, *bodies: bytes, at: float = NOW) -> None:
    incoming = Incoming(folder, clock=ManualClock(at))
    incoming.append_wait(token, list(bodies))
    incoming.close()


def test_nothing_is_counted_when_there_is_nothing(tmp_path: Path) -> None:
    found = stat_events(tmp_path, NOW)
    assert (found.writing, found.tokens, found.destinations, found.open, found.streams) == (
        False,
        [],
        [],
        [],
        [],
    )
    assert (found.oldest_seconds, found.archived_files, found.last_cycle) == (0.0, 0, None)


def test_files_count_for_their_token_when_they_wait(tmp_path: Path) -> None:
    write(tmp_path, "web", b"{}", b"{}", at=NOW - 90)
    write(tmp_path, "app", b'{"a":1}', at=NOW - 30)
    incoming = Incoming(tmp_path, clock=ManualClock(NOW))
    incoming.append_wait("web", [b"{}"])
    found = stat_events(tmp_path, NOW)
    incoming.close()
    assert found.writing
    assert found.oldest_seconds == 90.0
    assert found.tokens == [
        TokenStat("app", active_bytes=0, waiting_files=1, waiting_bytes=17),
        TokenStat("web", active_bytes=12, waiting_files=1, waiting_bytes=24),
    ]
    assert not stat_events(tmp_path, NOW).writing


def test_each_event_is_counted_once_when_files_are_loaded_and_archived(tmp_path: Path) -> None:
    write(tmp_path, "web", *[b"{}"] * 10, at=NOW - 60)
    write(tmp_path, "web", *[b"{}"] * 5, at=NOW)
    first, second = unprocessed(tmp_path)
    done = FileStatus.load(first)
    done.mark("dwh", "events", True, rows=6, unmapped=2)
    done.mark("dwh", "users", True, rows=1)
    done.count("dwh", events=10, skipped=2, rejected=1)
    done.save()
    archive(first)
    begun = FileStatus.load(second)
    begun.mark("dwh", "events", True, rows=3)
    begun.mark("dwh", "users", False, error="the server is unreachable")
    begun.save()
    reject = EventError.of(b"{}", "no table", destination_id="dwh", source=f"{first.name}:1", at=NOW)
    DestinationRejects(tmp_path).append("dwh", [reject])
    LastCycle(at=NOW, seconds=1.5, files=2, done=1).save(tmp_path)

    found = stat_events(tmp_path, NOW)
    (dwh,) = found.destinations
    # the events of a file are counted when all its tables have them, and so are its rows
    assert (dwh.files, dwh.events, dwh.rows, dwh.skipped, dwh.rejected) == (1, 10, 7, 2, 1)
    assert dwh.events == dwh.rows + dwh.skipped + dwh.rejected
    assert (dwh.open_files, dwh.open_rows) == (1, 3)
    assert (dwh.unmapped, dwh.open_rejects) == (2, 1)
    assert found.open == [OpenPair(second.name, "dwh", "users", "the server is unreachable")]
    assert (found.archived_files, found.archived_bytes > 0) == (1, True)
    assert found.last_cycle is not None
    assert (found.last_cycle.files, found.last_cycle.done) == (2, 1)


def test_rejects_are_counted_as_replays_when_they_wait_again(tmp_path: Path) -> None:
    reject = EventError.of(b"{}", "no table", destination_id="dwh", source="f:1", at=NOW)
    DestinationRejects(tmp_path).append("dwh", [reject])
    DestinationRejects(tmp_path).request_replay("dwh", NOW)
    found = stat_events(tmp_path, NOW)
    assert (found.replays, found.tokens) == (1, [])


def test_a_stream_is_counted_by_its_cursor_when_it_has_one(tmp_path: Path) -> None:
    queues = Queues(tmp_path, [DestinationSettings(id="dwh", type="duckdb", mode="stream")])
    queues.log("dwh").append_wait([b"{}"] * 10)
    queue = EventFolder(tmp_path).queue("dwh")
    (stream,) = stat_events(tmp_path, NOW).streams
    assert (stream.id, stream.running, stream.waiting, stream.rows) == ("dwh", False, 10, 0)
    cursor = StreamCursor.load(queue, identity_of(queue))
    cursor.position, cursor.rows, cursor.skipped, cursor.rejected, cursor.missing = 8, 4, 1, 1, 1
    cursor.error = "the server is unreachable"
    cursor.save(queue)
    queues.close()
    (stream,) = stat_events(tmp_path, NOW).streams
    assert stream.waiting + stream.rows + stream.skipped + stream.rejected + stream.missing == 10
    assert (stream.waiting, stream.error) == (3, "the server is unreachable")


def test_each_partition_of_a_topic_is_a_stream_when_kafka_feeds_the_destination(tmp_path: Path) -> None:
    queue = EventFolder(tmp_path).queue("dwh")
    for partition in (0, 1):
        folder = queue / f"topic.headwater-web.{partition}"
        stream_folder(folder).mkdir(parents=True)
        StreamCursor(queue="", position=1, archived=1, rows=partition).save(folder)
    found = stat_events(tmp_path, NOW).streams
    assert [(each.id, each.rows) for each in found] == [
        ("dwh topic.headwater-web.0", 0),
        ("dwh topic.headwater-web.1", 1),
    ]


def test_a_file_has_no_bytes_when_it_is_archived_during_the_look(tmp_path: Path) -> None:
    write(tmp_path, "web", b"{}")
    path = unprocessed(tmp_path)[0].path
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")  # listed, and gone when its size is asked for
    assert stat_events(tmp_path, NOW).tokens == [TokenStat("web", 0, 1, 0)]
