"""Settings change while events wait: each is loaded once where it was meant to go, or the start refuses.

The oracle is the number of each event: none may be lost, and none may be there twice.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from headwater.cli.main import cli
from headwater.destinations.locks import load_locks
from headwater.errors import LogLocked, SettingsError
from headwater.log.files.file_status import FileStatus
from headwater.log.files.incoming import Incoming, finish_interrupted
from headwater.log.files.layout import unprocessed
from headwater.log.orphans import forget_destination, left_over_queues, orphans, refuse_orphans
from headwater.pipeline.batch.cycle import run_cycle
from headwater.pipeline.left_overs import LeftOvers, load_left_over_queues
from headwater.settings import Settings
from headwater.system.durable_files import try_lock
from tests.pipeline.stream_rig import StreamRig, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WEB = {"id": "web", "server_secret": "s1"}
APP = {"id": "app", "server_secret": "s2"}


class Events(StreamRig):
    """Events with numbers, which a gateway acknowledges in files and queues."""

    def settings(self, *destinations: Mapping[str, Any], **more: Any) -> Settings:
        return super().settings(*destinations, **({"tokens": [WEB, APP]} | more))

    def take(self, settings: Settings, numbers: Iterable[int], token: str = "web") -> None:
        """A gateway with these settings writes a file of the token, and stops."""
        incoming = Incoming(settings.events_dir, settings.events, destinations=settings.destinations)
        incoming.append_wait(token, [json.dumps({"n": n, "t": token}).encode() for n in numbers])
        incoming.close()

    def enqueue(self, settings: Settings, numbers: Iterable[int], id: str = "dwh") -> None:
        """A gateway with these settings appends to a queue, and stops."""
        self.put(settings, *({"n": n} for n in numbers), id=id)
        self.stop_gateway()

    def left_overs(self, settings: Settings) -> None:
        LeftOvers(settings, self.spark, threading.Event()).load()

    def load_queues(self, settings: Settings) -> None:
        load_left_over_queues(settings, self.spark, threading.Event())

    def numbers(self, id: str = "dwh", table: str = "events") -> list[int]:
        return sorted(n for (n,) in self.sql(f'SELECT n FROM "{table}"', id))

    def follow(self, settings: Settings, id: str = "dwh") -> None:
        """Stream until the queue is empty."""
        with self.stream(settings) as streams:
            until(lambda: streams.streams[id].is_done, "the end of the queue")


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> Iterator[Events]:
    with Events(spark, tmp_path) as made:
        yield made


def test_waiting_files_are_loaded_when_a_destination_changes_from_batch_to_stream(events: Events) -> None:
    batch = events.settings({"id": "dwh"}, {"id": "lake"})
    events.take(batch, range(200))
    stream = events.stream_settings({"id": "dwh"}, {"id": "lake", "mode": "batch"})
    events.take(stream, range(200, 220))  # a file for the lake alone
    events.enqueue(stream, range(200, 220))
    run_cycle(stream, events.spark)
    events.follow(stream)
    assert events.numbers() == events.numbers("lake") == list(range(220))


def test_the_stream_loads_waiting_files_when_no_destination_is_in_batch_mode(events: Events) -> None:
    events.take(events.settings(), range(50))
    stream = events.stream_settings()
    events.enqueue(stream, range(50, 60))
    events.left_overs(stream)
    events.left_overs(stream)
    events.follow(stream)
    assert events.numbers() == list(range(60))
    assert events.waiting() == []


def test_the_queue_is_loaded_first_when_a_destination_changes_from_stream_to_batch(events: Events) -> None:
    stream, batch = events.stream_settings(), events.settings()
    events.enqueue(stream, range(30))
    events.follow(stream)
    events.enqueue(stream, range(30, 200))
    events.take(batch, range(200, 240))
    assert [each.id for each in left_over_queues(batch)] == ["dwh"]
    events.load_queues(batch)
    run_cycle(batch, events.spark)
    assert left_over_queues(batch) == []
    events.enqueue(stream, range(240, 300))  # and back
    events.follow(stream)
    assert events.numbers() == list(range(300))


def test_the_queue_waits_for_the_next_cycle_when_its_destination_cannot_be_reached(
    events: Events, tmp_path: Path
) -> None:
    events.enqueue(events.stream_settings(), range(20))
    folder = tmp_path / "not-there"
    broken = events.settings({"options": {"path": str(folder / "dwh.duckdb")}})
    folder.write_text("a file where the folder should be")
    events.load_queues(broken)
    assert [each.id for each in left_over_queues(broken)] == ["dwh"]
    events.load_queues(events.settings())
    assert events.numbers() == list(range(20))


def test_queue_and_files_are_loaded_when_kafka_takes_their_place(events: Events) -> None:
    before = events.stream_settings({"id": "dwh"}, {"id": "lake", "mode": "batch"})
    events.enqueue(before, range(40))
    events.take(before, range(40))
    kafka = events.stream_settings(
        {"id": "dwh"}, {"id": "lake"}, events={"kafka": {"servers": "localhost:1"}}
    )
    events.left_overs(kafka)
    assert events.numbers() == events.numbers("lake") == list(range(40))
    assert left_over_queues(kafka) == []
    assert events.waiting() == []


def test_each_destination_gets_its_events_when_a_token_is_renamed_with_only_keys(events: Events) -> None:
    before = events.settings({"only_keys": ["web"]}, {"id": "lake"})
    events.take(before, range(200))
    after = events.settings(
        {"only_keys": ["shop"]}, {"id": "lake"}, tokens=[{"id": "shop", "server_secret": "s1"}, APP]
    )
    events.take(after, range(200, 210), token="shop")
    run_cycle(after, events.spark)
    assert events.numbers() == events.numbers("lake") == list(range(210))


def test_waiting_files_are_loaded_when_their_token_is_removed(events: Events) -> None:
    events.take(events.settings(), range(30))
    run_cycle(events.settings(tokens=[APP]), events.spark)
    assert events.numbers() == list(range(30))


def test_waiting_files_go_where_they_were_meant_to_when_only_keys_gets_fewer_tokens(events: Events) -> None:
    events.take(events.settings({"only_keys": ["web", "app"]}), range(30))
    run_cycle(events.settings({"only_keys": ["app"]}), events.spark)
    assert events.numbers() == list(range(30))


def test_waiting_files_go_there_too_when_a_destination_is_added(events: Events) -> None:
    events.take(events.settings(), range(30))
    run_cycle(events.settings({"id": "dwh"}, {"id": "lake"}), events.spark)
    assert events.numbers() == events.numbers("lake") == list(range(30))


def test_files_that_wait_stay_with_their_token_when_another_is_added(events: Events) -> None:
    only_web = {"id": "lake", "only_keys": ["web"]}
    before = events.settings({"id": "dwh"}, only_web, tokens=[WEB])
    events.take(before, range(20))
    after = events.settings({"id": "dwh"}, only_web)
    events.take(after, range(20, 40), "app")
    events.take(after, range(40, 60))
    run_cycle(after, events.spark)
    assert events.numbers() == list(range(60))
    assert events.numbers("lake") == [*range(20), *range(40, 60)]


def test_a_new_stream_begins_with_new_events_when_a_destination_is_added_in_stream_mode(
    events: Events,
) -> None:
    before = events.stream_settings({"id": "dwh"})
    events.enqueue(before, range(20))
    after = events.stream_settings({"id": "dwh"}, {"id": "live"})
    for id in ("dwh", "live"):
        events.enqueue(after, range(20, 30), id)
        events.follow(after, id)
    assert events.numbers() == list(range(30))
    assert events.numbers("live") == list(range(20, 30))


def test_events_go_where_the_settings_said_when_the_server_that_wrote_them_died(
    events: Events, tmp_path: Path
) -> None:
    before = events.settings({"only_keys": ["web"]}, {"id": "lake"})
    incoming = Incoming(before.events_dir, before.events, destinations=before.destinations)
    incoming.append_wait("web", [b'{"n": 1}', b'{"n": 2}'])
    shutil.copytree(before.events_dir, tmp_path / "copy")
    incoming.close()
    shutil.rmtree(before.events_dir)
    (tmp_path / "copy").rename(before.events_dir)  # as it was when a server dies now
    after = events.settings({"only_keys": ["app"]}, {"id": "lake"})
    finish_interrupted(after.events_dir)
    run_cycle(after, events.spark)
    assert events.numbers() == events.numbers("lake") == [1, 2]


@pytest.mark.parametrize("removed", ["renamed", "removed"])
def test_the_start_refuses_when_events_wait_for_a_destination_that_is_gone(
    events: Events, removed: str
) -> None:
    before = events.stream_settings({"id": "old"}, {"id": "files", "mode": "batch"}, {"id": "lake"})
    events.enqueue(before, range(5), id="old")
    events.take(before, range(7))
    kept = [{"id": "lake"}] + [{"id": "new"}] * (removed == "renamed")
    after = events.stream_settings(*kept)
    with pytest.raises(SettingsError) as refused:
        refuse_orphans(after)
    assert [(each.destination, each.files, each.events) for each in orphans(after)] == [
        ("files", 1, 0),
        ("old", 0, 5),
    ]
    assert "headwater pipeline forget files" in str(refused.value)
    assert "headwater pipeline forget old" in str(refused.value)
    run_cycle(after, events.spark)  # a running pipeline keeps the file
    assert len(events.waiting()) == 1
    refuse_orphans(before)  # configured again, all of it is loaded
    events.follow(before, "old")
    run_cycle(before, events.spark)
    refuse_orphans(after)
    assert (events.numbers("old"), events.numbers("files")) == ([*range(5)], [*range(7)])


def test_the_others_still_get_theirs_when_the_events_of_one_destination_are_given_up(
    events: Events, tmp_path: Path
) -> None:
    before = events.stream_settings({"id": "old"}, {"id": "gone", "mode": "batch"}, {"mode": "batch"})
    events.enqueue(before, range(5), id="old")
    events.take(before, range(7))
    after = events.settings()
    config = tmp_path / "headwater.yml"
    config.write_bytes(msgspec.json.encode({"data_dir": str(tmp_path), "destinations": after.destinations}))
    run = CliRunner()
    refused = run.invoke(cli, ["-c", str(config), "pipeline", "run"])
    assert (refused.exit_code, "pipeline forget gone" in refused.stderr) == (2, True)
    for id, counts in (("old", {"files": 0, "events": 5}), ("gone", {"files": 1, "events": 0})):
        done = run.invoke(cli, ["-c", str(config), "pipeline", "forget", id, "-y", "--json"])
        assert json.loads(done.stdout) == counts
    again = run.invoke(cli, ["-c", str(config), "pipeline", "forget", "old"])
    assert again.stdout == "nothing waits for old\n"
    configured = run.invoke(cli, ["-c", str(config), "pipeline", "forget", "dwh"])
    assert configured.exit_code == 1
    refuse_orphans(after)
    run_cycle(after, events.spark)
    assert events.numbers() == list(range(7))
    assert events.waiting() == []


def test_nothing_is_given_up_when_a_pipeline_loads_the_file(events: Events, tmp_path: Path) -> None:
    events.take(events.settings({"id": "gone"}), range(3))
    [file] = unprocessed(tmp_path / "events")
    with file.path.open("rb") as claim:
        assert try_lock(claim.fileno())
        with pytest.raises(LogLocked):
            forget_destination(tmp_path / "events", "gone")
    assert FileStatus.load(file).wanted_by == ["gone"]


def test_each_event_has_one_table_when_the_template_changes_between_two_tables_of_a_file(
    events: Events,
) -> None:
    events.file([{"n": n, "t": "a" if n % 2 else "b"} for n in range(20)])
    before = events.settings({"table_name_template": "{{ t }}"}, pipeline={"lock": {"timeout_seconds": 0.1}})
    with load_locks(before.pipeline.lock, before.locks_dir).hold("dwh", "b"):
        assert not events.cycle(before).is_complete
    assert events.cycle(events.settings({"table_name_template": "new_{{ t }}"})).is_complete
    assert events.tables() == {"a", "b"}
    assert sorted(events.numbers(table="a") + events.numbers(table="b")) == list(range(20))


def test_a_file_is_done_when_the_template_changes_after_a_load_that_failed(events: Events) -> None:
    events.file([{"n": n} for n in range(20)])
    before = events.settings({"table_name_template": "a"}, pipeline={"lock": {"timeout_seconds": 0.1}})
    with load_locks(before.pipeline.lock, before.locks_dir).hold("dwh", "a"):
        assert not events.cycle(before).is_complete
    assert events.cycle(events.settings({"table_name_template": "b"})).is_complete
    assert (events.tables(), events.waiting()) == ({"b"}, [])
    assert events.numbers(table="b") == list(range(20))


def test_each_event_is_one_row_when_the_data_folder_moves_with_what_waits(
    events: Events, spark: SparkSession, tmp_path: Path
) -> None:
    events.enqueue(events.stream_settings({"id": "live"}), range(10), id="live")
    events.take(events.settings(), range(20))
    run_cycle(events.settings(), spark)
    events.follow(events.stream_settings({"id": "live"}), "live")
    events.take(events.settings(), range(20, 30))
    events.enqueue(events.stream_settings({"id": "live"}), range(10, 30), id="live")
    with Events(spark, tmp_path / "new") as moved:
        shutil.rmtree(tmp_path / "new" / "events")
        for name in ("events", "dwh.duckdb", "live.duckdb"):
            (tmp_path / name).rename(tmp_path / "new" / name)
        run_cycle(moved.settings(), spark)
        moved.follow(moved.stream_settings({"id": "live"}), "live")
        assert moved.numbers() == moved.numbers("live") == list(range(30))


def test_waiting_events_are_stored_under_the_new_key_when_the_primary_key_changes(events: Events) -> None:
    events.file([{"n": n, "id": n % 5} for n in range(10)])
    assert events.cycle(events.settings({"primary_key": ["n"]})).is_complete
    events.file([{"n": n, "id": n} for n in range(10, 20)])
    events.file([{"n": n, "id": n, "late": True} for n in range(10, 20)])
    assert events.cycle(events.settings({"primary_key": ["n", "id"]})).is_complete
    assert events.numbers() == list(range(20))
