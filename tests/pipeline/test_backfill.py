"""Backfill: the archive into a destination that was added later."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.errors import HeadwaterError
from headwater.log.files.checked_lines import checked_line
from headwater.pipeline.batch.backfill import INCOMING, backfill, choose, default_until
from headwater.pipeline.batch.unpacked_file import Selection
from headwater.settings import Settings
from tests.pipeline.rig import BROWSER_KEY, Rig
from tests.pipeline.stream_rig import StreamRig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINCE = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Iterator[Rig]:
    with Rig(spark, tmp_path) as made:
        yield made


def archive(rig: Rig, name: str, *events: dict[str, Any], is_checked: bool = True) -> Path:
    folder = rig.folder / "events" / "archive" / "2026-11-16"
    folder.mkdir(parents=True, exist_ok=True)
    bodies = [json.dumps(event).encode() for event in events]
    lines = b"".join(checked_line(body) if is_checked else body + b"\n" for body in bodies)
    path = folder / f"{name}-2026-11-16T10-00-00.000.log.gz"
    path.write_bytes(gzip.compress(lines))
    return path


def fill(
    rig: Rig,
    settings: Settings,
    id: str,
    until: datetime | None = None,
    origin: str = "",
    *,
    since: datetime = SINCE,
    former: tuple[str, ...] = (),
) -> int:
    """Backfill; how many rows were reported."""
    destination = next(each for each in settings.destinations if each.id == id)
    files = choose(settings, destination, since, origin, former)
    selection = Selection(since, until, former)
    reports = list(backfill(settings, rig.spark, destination, files, selection))
    assert all(report.is_complete for report in reports)
    return sum(each.rows for report in reports for file in report.files for each in file.destinations)


def test_a_new_destination_gets_what_others_had_when_it_is_filled_from_batch_files(rig: Rig) -> None:
    settings = rig.settings({"id": "old"}, {"id": "new"})
    rig.file([{"a": 1}, b"bad", {"a": 2}])
    assert rig.cycle(rig.settings({"id": "old"})).is_complete
    assert fill(rig, settings, "new") == 2
    assert rig.rows(id="new") == [{"a": 1}, {"a": 2}]
    assert len(rig.rejects("new")) == 1
    # what a destination has had, it does not take again, whichever way it came
    for id in ("old", "new"):
        fill(rig, settings, id)
        assert len(rig.rows(id=id)) == 2
    assert list((rig.folder / "staging").iterdir()) == []


@pytest.mark.parametrize("is_checked", [True, False], ids=["checksums", "earlier release"])
def test_events_are_chosen_by_token_and_time_when_they_come_from_another_stream(
    rig: Rig, is_checked: bool
) -> None:
    tokens = [{"id": "web", "client_secret": BROWSER_KEY}, {"id": "app", "server_secret": "s"}]
    settings = rig.settings(
        {"id": "old", "mode": "stream"}, {"id": "new", "mode": "stream", "only_keys": ["app"]}, tokens=tokens
    )
    archive(
        rig,
        "streaming-archive.dst=old",
        {"n": 1, "api_key": "app", "_timestamp": "2026-11-15T23:59:59Z"},
        {"n": 2, "api_key": "app", "_timestamp": "2026-11-16T09:00:00Z"},
        {"n": 3, "api_key": BROWSER_KEY, "_timestamp": "2026-11-16T09:00:00Z"},
        {"n": 4, "api_key": "app", "_timestamp": "2026-11-16T09:30:00+00:00"},
        {"n": 5, "api_key": "app", "_timestamp": "2026-11-16T09:45:00"},
        {"n": 6, "api_key": "app"},
        is_checked=is_checked,
    )
    until = datetime(2026, 11, 16, 9, 45, tzinfo=UTC)
    assert fill(rig, settings, "new", until) == 3
    assert [row["n"] for row in rig.rows(id="new")] == [2, 4, 6]


def test_damage_of_one_file_holds_back_no_other_and_becomes_no_row(rig: Rig) -> None:
    settings = rig.settings({"id": "new"})
    torn = archive(rig, "incoming.tok=a", {"n": 0})
    torn.write_bytes(torn.read_bytes()[:-10])
    lines = checked_line(b'{"n": 1}') + checked_line(b'{"n": 2}').replace(b"2", b"3", 1)
    archive(rig, "incoming.tok=b").write_bytes(gzip.compress(lines))
    [destination] = settings.destinations
    files = choose(settings, destination, SINCE)
    first, second = backfill(settings, rig.spark, destination, files, Selection(SINCE, None))
    assert "cannot be unpacked" in first.errors[0]
    assert second.is_complete
    assert rig.rows(id="new") == [{"n": 1}]
    [reject] = rig.rejects("new")
    assert reject.damaged


def test_one_origin_is_taken_when_the_archive_has_several(rig: Rig) -> None:
    settings = rig.settings({"id": "new"})
    for name in ("streaming-archive.dst=one", "streaming-archive.dst=two", "failed.dst=one"):
        archive(rig, name, {"a": 1})
    [destination] = settings.destinations
    with pytest.raises(HeadwaterError, match="one, two") as raised:
        choose(settings, destination, SINCE)
    assert "--from" in raised.value.hint
    assert [file.id for file in choose(settings, destination, SINCE, "two")] == ["two"]
    archive(rig, "incoming.tok=web", {"a": 1})
    assert [file.kind for file in choose(settings, destination, SINCE)] == [INCOMING]
    assert choose(settings, destination, datetime(2026, 11, 17, tzinfo=UTC)) == []


def test_its_own_queue_is_the_limit_when_no_other_is_given(rig: Rig) -> None:
    settings = rig.settings({"id": "new", "mode": "stream"})
    [destination] = settings.destinations
    archive(rig, "incoming.tok=web", {"a": 1})
    files = choose(settings, destination, SINCE)
    assert default_until(settings, destination, files) is None
    queue = rig.folder / "events" / "queue.dst=new"
    queue.mkdir()
    (queue / "identity").write_text("x")
    found = default_until(settings, destination, files)
    assert found is not None
    assert found <= datetime.now(UTC)


def at(minute: int) -> datetime:
    return datetime(2026, 11, 16, 9, minute, tzinfo=UTC)


def numbers(rig: Rig, id: str = "new") -> list[int]:
    return sorted(row["n"] for row in rig.rows(id=id))


@pytest.mark.parametrize("origin", ["incoming.tok=web", "streaming-archive.dst=old"])
def test_no_row_is_doubled_when_backfills_with_other_times_overlap(rig: Rig, origin: str) -> None:
    settings = rig.settings({"id": "new"})
    events = [{"n": n, "api_key": "ab"[n % 2], "_timestamp": at(n % 30).isoformat()} for n in range(60)]
    archive(rig, origin, *events)
    fill(rig, settings, "new", at(10))
    assert numbers(rig) == [n for n in range(60) if n % 30 < 10]
    fill(rig, settings, "new", at(20), since=at(5))
    assert numbers(rig) == [n for n in range(60) if n % 30 < 20]
    for until_minute in (None, at(15), None):
        fill(rig, settings, "new", until_minute)
    assert numbers(rig) == list(range(60))


def test_no_row_is_doubled_when_a_part_is_filled_after_the_whole(rig: Rig) -> None:
    settings = rig.settings({"id": "new"})
    rig.file([{"n": n, "_timestamp": at(n).isoformat()} for n in range(40)])
    assert rig.cycle(settings).is_complete
    assert fill(rig, settings, "new", at(10)) == 10  # loaded earlier, and counted
    assert fill(rig, settings, "new") == 40
    assert numbers(rig) == list(range(40))


def test_events_of_a_former_token_are_filled_too_when_it_is_named(rig: Rig) -> None:
    tokens = [{"id": "shop", "server_secret": "s"}]
    settings = rig.settings({"id": "new", "only_keys": ["shop"]}, tokens=tokens)
    archive(rig, "streaming-archive.dst=old", {"n": 1, "api_key": "web"}, {"n": 2, "api_key": "shop"})
    archive(rig, "incoming.tok=web", {"n": 3})
    assert fill(rig, settings, "new", origin="old") == 1
    fill(rig, settings, "new", origin="old", former=("web",))
    fill(rig, settings, "new", origin=INCOMING, former=("web",))
    assert numbers(rig) == [1, 2, 3]


def test_a_lost_warehouse_is_filled_again_when_its_stream_has_an_archive(
    spark: SparkSession, tmp_path: Path
) -> None:
    with StreamRig(spark, tmp_path) as rig:
        settings = rig.stream_settings()
        rig.drained(settings, *({"n": n} for n in range(30)))
        copy = rig.database().read_bytes()
        rig.drained(settings, *({"n": n} for n in range(30, 80)))
        [destination] = settings.destinations
        assert default_until(settings, destination, choose(settings, destination, SINCE)) is None
        fill(rig, settings, "dwh")  # nothing is lost: the ledger has all of it
        assert numbers(rig, "dwh") == list(range(80))
        rig.database().write_bytes(copy)
        for _ in range(2):
            fill(rig, settings, "dwh")
            assert numbers(rig, "dwh") == list(range(80))
        rig.database().unlink()
        for until_time in (None, None):
            fill(rig, settings, "dwh", until_time)
            assert numbers(rig, "dwh") == list(range(80))
        rig.drained(settings, *({"n": n} for n in range(80, 90)))
        assert numbers(rig, "dwh") == list(range(90))


def test_no_row_is_doubled_when_the_same_events_are_filled_from_several_origins(rig: Rig) -> None:
    tokens = [{"id": "web", "client_secret": BROWSER_KEY}, {"id": "app", "server_secret": "s"}]
    settings = rig.settings({"id": "new"}, tokens=tokens)
    events = [{"n": n, "api_key": ("web", "app")[n % 2], "_timestamp": at(n).isoformat()} for n in range(40)]
    archive(rig, "streaming-archive.dst=one", *events[:20])
    archive(rig, "streaming-archive.dst=two", *events[10:30])
    archive(rig, "incoming.tok=web", *events[:40:2])
    archive(rig, "incoming.tok=app", *events[1:40:2])
    fill(rig, settings, "new", at(15), "one")
    assert numbers(rig) == list(range(15))
    fill(rig, settings, "new", origin="two")
    assert numbers(rig) == list(range(30))
    for origin in (INCOMING, "two", "one"):
        fill(rig, settings, "new", origin=origin)
        assert numbers(rig) == list(range(40))
    rig.database("new").unlink()  # without tables and ledger, each origin brings back what it has
    fill(rig, settings, "new", origin="two")
    assert numbers(rig) == list(range(10, 30))


def test_no_row_is_doubled_when_the_events_wait_in_files_too(rig: Rig) -> None:
    settings = rig.settings({"id": "new"})
    events = [{"n": n, "_timestamp": at(n).isoformat()} for n in range(20)]
    archive(rig, "streaming-archive.dst=old", *events)
    rig.file(events[10:15])  # complete; its writer died with the next one
    active = rig.incoming / "incoming.tok=web.log"
    active.write_bytes(b"".join(checked_line(json.dumps(event).encode()) for event in events[15:]))
    assert fill(rig, settings, "new", origin="old") == 10
    assert rig.cycle(settings).is_complete
    fill(rig, settings, "new", origin="old")
    assert numbers(rig) == list(range(20))


def test_no_row_is_doubled_when_a_time_is_given_after_its_own_queue_began(
    spark: SparkSession, tmp_path: Path
) -> None:
    with StreamRig(spark, tmp_path) as rig:
        settings = rig.stream_settings()
        events = [{"n": n, "_timestamp": at(n).isoformat()} for n in range(50)]
        archive(rig, "streaming-archive.dst=old", *events)
        rig.drained(settings, *events[20:30])  # in the tables
        rig.put(settings, *events[30:40])  # they wait in the queue
        fill(rig, settings, "dwh", at(45), "old")
        assert numbers(rig, "dwh") == [*range(30), *range(40, 45)]
        rig.drained(settings)
        fill(rig, settings, "dwh", at(59), "old")
        fill(rig, settings, "dwh", origin="dwh")
        assert numbers(rig, "dwh") == list(range(50))
