"""Damage of an event file on disk: no wrong row, no lost one, and the damage is reported (G3, G6, G9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.log.files.layout import unprocessed
from headwater.log.rejects.destination_file import DestinationRejects
from headwater.pipeline.batch import cycle
from headwater.pipeline.steps import route
from tests.log.event_parts import events_in
from tests.pipeline.rig import Rig

REASON = "damaged on disk: the line does not match its checksum"
EVENTS = [{"n": number, "amount": number * 100} for number in range(6)]
TEMPLATES = [pytest.param("events", id="one table"), pytest.param("t{{ n }}", id="routed")]


def flip(path: Path, text: bytes) -> None:
    """Another amount, by one bit."""
    content = bytearray(path.read_bytes())
    content[content.index(text) + len(text) - 1] ^= 1
    path.write_bytes(content)


def amounts(rig: Rig) -> dict[int, int]:
    return {row["n"]: row["amount"] for table in sorted(rig.tables()) for row in rig.rows(table)}


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_the_line_is_a_reject_and_no_row_when_a_bit_is_flipped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, template: str, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(route, "SMALL_BYTES", 0)
        monkeypatch.setattr(cycle, "SMALL_BYTES", 0)
    path = rig.file(EVENTS)
    flip(path, b'"amount": 300')
    report = rig.cycle(rig.settings({"table_name_template": template}))
    assert amounts(rig) == {n: n * 100 for n in range(6) if n != 3}
    [reject] = rig.rejects()
    assert (reject.error, reject.damaged) == (REASON, True)
    assert '"amount": 301' in reject.malformed_event
    assert report.is_complete
    assert report.damaged == [f"{path.name}: 1 of 6 lines are damaged"]
    [destination] = report.files[0].destinations
    assert (destination.events, destination.rows, destination.rejected) == (6, 5, 1)
    # not even a replay makes a row of it
    DestinationRejects(rig.folder / "events").request_replay("dwh", 1_800_000_000.0)
    rig.cycle(rig.settings({"table_name_template": template}))
    assert amounts(rig) == {n: n * 100 for n in range(6) if n != 3}
    assert [each.damaged for each in rig.rejects()] == [True]


def test_a_vanished_and_a_doubled_line_are_reported_when_the_rest_is_loaded(rig: Rig) -> None:
    first, second = rig.file(EVENTS[:3]), rig.file(EVENTS[3:])
    lines = first.read_bytes().splitlines(True)
    first.write_bytes(lines[0] + lines[2])
    lines = second.read_bytes().splitlines(True)
    second.write_bytes(b"".join(lines) + lines[0])
    report = rig.cycle()
    assert report.damaged == [
        f"{first.name}: 3 lines were written, 2 are there",
        f"{second.name}: 3 lines were written, 4 are there",
    ]
    assert sorted(row["n"] for row in rig.rows()) == [0, 2, 3, 3, 4, 5]


def test_two_lines_are_one_reject_when_the_line_end_between_them_is_damaged(rig: Rig) -> None:
    path = rig.file(EVENTS)
    flip(path, b'"amount": 200}' + path.read_bytes().splitlines(True)[2][-10:])
    report = rig.cycle()
    assert sorted(row["n"] for row in rig.rows()) == [0, 1, 4, 5]
    [reject] = rig.rejects()
    assert '"amount": 200' in reject.malformed_event
    assert '"amount": 300' in reject.malformed_event
    assert report.damaged == [f"{path.name}: 1 of 5 lines are damaged; 6 lines were written, 5 are there"]


def test_files_of_an_earlier_release_are_loaded_beside_those_with_checksums(rig: Rig) -> None:
    rig.file(EVENTS[:2], is_checked=False)
    rig.file(EVENTS[2:4])
    rig.file(EVENTS[4:], is_checked=False)
    report = rig.cycle()
    assert report.is_complete
    assert report.damaged == []
    assert amounts(rig) == {n: n * 100 for n in range(6)}
    assert rig.rejects() == []


def test_a_malformed_line_is_kept_without_its_checksum_when_it_is_rejected(rig: Rig) -> None:
    rig.load({"a": 1}, b"bad", b"", b'{"a": 2} tail')
    assert [reject.malformed_event for reject in rig.rejects()] == ["bad", '{"a": 2} tail']
    DestinationRejects(rig.folder / "events").request_replay("dwh", 1_800_000_000.0)
    [file] = unprocessed(rig.folder / "events")
    assert events_in(file.path) == [b"bad", b'{"a": 2} tail']
