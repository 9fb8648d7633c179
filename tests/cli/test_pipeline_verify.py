from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.log.files.archive import archive
from headwater.log.files.archive_counts import count_archive, keep_counts
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import unprocessed

from .conftest import Headwater


@pytest.fixture
def events(tmp_path: Path) -> Path:
    folder = tmp_path / "headwater-data" / "events"
    (tmp_path / "headwater.yml").write_text("destinations: [{id: dwh, type: duckdb}]")
    for _ in range(2):
        incoming = Incoming(folder)
        incoming.append_wait("web", [b'{"n":1}', b'{"n":2}'])
        incoming.close()
    archive(unprocessed(folder)[0])
    return folder


def test_every_file_is_listed_when_all_are_whole(headwater: Headwater, events: Path) -> None:
    result = headwater("pipeline", "verify")
    assert result.exit_code == 0
    assert "2 file(s) read, 0 damaged" in result.output
    assert str(unprocessed(events)[0].path.relative_to(events)) in result.output


def test_the_exit_code_is_1_and_the_file_named_when_a_line_is_damaged(
    headwater: Headwater, events: Path
) -> None:
    path = unprocessed(events)[0].path
    path.write_bytes(path.read_bytes().replace(b'{"n":2}', b'{"n":3}'))
    result = headwater("pipeline", "verify")
    assert (result.exit_code, "1 of 2 lines are damaged" in result.output) == (1, True)
    found = json.loads(headwater("pipeline", "verify", "--json").stdout)
    assert [Path(each["file"]).name for each in found if each["problem"]] == [path.name]
    # and the archive step leaves it in the status, which `headwater status` shows
    archive(unprocessed(events)[0])
    assert f"damaged: {path.name}.gz: 1 of 2 lines are damaged" in headwater("status").output
    assert json.loads(headwater("status", "--json").stdout)["events"]["damaged"][0]["damage"]


def test_the_counts_are_the_same_when_those_of_finished_days_are_kept(
    headwater: Headwater, events: Path
) -> None:
    before = count_archive(events)
    assert (before.files, before.bytes > 0) == (1, True)
    keep_counts(events, 4e9)
    (kept,) = events.glob("archive/*.counts.json")
    for status in events.glob("archive/*/*.status"):
        status.write_bytes(b"not read again")
    assert count_archive(events) == before
    archive(unprocessed(events)[0])  # the day has changed: it is counted again
    assert count_archive(events).files == 2
    for path in kept.with_name(kept.name[:10]).iterdir():
        path.unlink()
    kept.with_name(kept.name[:10]).rmdir()
    keep_counts(events, 4e9)
    assert not kept.exists()
