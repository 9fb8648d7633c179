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
from headwater.settings import Settings
from tests.pipeline.rig import BROWSER_KEY, Rig

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


def fill(rig: Rig, settings: Settings, id: str, until: datetime | None = None, origin: str = "") -> int:
    """Backfill; how many rows were stored."""
    destination = next(each for each in settings.destinations if each.id == id)
    files = choose(settings, destination, SINCE, origin)
    reports = list(backfill(settings, rig.spark, destination, files, SINCE, until))
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
    first, second = backfill(settings, rig.spark, destination, files, SINCE, None)
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
    assert default_until(settings, destination) is None
    queue = rig.folder / "events" / "queue.dst=new"
    queue.mkdir()
    (queue / "identity").write_text("x")
    found = default_until(settings, destination)
    assert found is not None
    assert found <= datetime.now(UTC)
