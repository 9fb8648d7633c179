from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.log.files.archive import archive
from headwater.log.files.file_status import FileStatus, LastCycle
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import unprocessed
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.rejects.store import NewReject, RejectStore
from tests.log.event_parts import events_in

from .conftest import Headwater

AT = 1_800_000_000.0


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Two rejects of one destination and one of another, with a configuration that names the first."""
    folder = tmp_path / "headwater-data" / "events"
    for destination, lines in {"dwh": [b'{"n": 1.50}', b"{bad"], "old": [b'{"n":3}']}.items():
        DestinationRejects(folder).append(
            destination,
            [
                EventError.of(line, "no such table", destination_id=destination, source=f"f:{i}", at=AT)
                for i, line in enumerate(lines)
            ],
        )
    destinations = [{"id": id, "type": "duckdb"} for id in ("dwh", "new", "old")]
    (tmp_path / "headwater.yml").write_text(json.dumps({"destinations": destinations}))
    return folder


@pytest.fixture
def stored(tmp_path: Path, events: Path) -> None:
    store = RejectStore(tmp_path / "headwater-data" / "rejects.db", max_bytes=1_000_000)
    store.add("gateway", [NewReject("not JSON", b"{")])
    store.close()


@pytest.mark.usefixtures("stored")
def test_rejects_of_destinations_are_listed_too_when_no_stage_is_named(headwater: Headwater) -> None:
    result = headwater("rejects", "list")
    assert [line.split()[0] for line in result.output.splitlines()] == ["id", "1", "dwh:1", "dwh:2", "old:1"]
    assert "There are more" in headwater("rejects", "list", "--limit", "2").output


@pytest.mark.usefixtures("events")
def test_only_the_destinations_own_are_listed_when_it_is_named(headwater: Headwater) -> None:
    result = headwater("rejects", "list", "--stage", "destination:dwh", "--json")
    assert [(each["id"], each["event"], each["error"]) for each in json.loads(result.stdout)] == [
        ("dwh:1", {"n": 1.5}, "no such table"),
        ("dwh:2", "{bad", "no such table"),
    ]
    assert "no rejects" in headwater("rejects", "list", "--stage", "destination:new").output
    unknown = headwater("rejects", "list", "--stage", "destination:unknown")
    assert (unknown.exit_code, "Known: dwh, new, old" in unknown.output) == (1, True)


@pytest.mark.usefixtures("events")
def test_the_event_and_the_reason_are_shown_when_one_is_asked_for(headwater: Headwater) -> None:
    result = headwater("rejects", "show", "dwh:1")
    assert "reason: no such table" in result.output
    assert "1.50" in result.output
    assert "{bad" in headwater("rejects", "show", "dwh:2").output
    assert json.loads(headwater("rejects", "show", "old:1", "--json").stdout)["source"] == "f:0"
    for id in ("dwh:3", "dwh:0", "dwh:x", "unknown:1"):
        assert headwater("rejects", "show", id).exit_code == 1


def test_the_pipeline_is_asked_when_they_are_replayed(headwater: Headwater, events: Path) -> None:
    result = headwater("rejects", "replay", "--stage", "destination:dwh")
    assert result.output == "2 replay(s) requested of the pipeline\n"
    (file,) = unprocessed(events)
    assert file.destination_id == "dwh"
    assert events_in(file.path) == [b'{"n": 1.50}', b"{bad"]
    assert json.loads(headwater("rejects", "replay", "--all", "--json").stdout) == {"requested": 1}
    assert len(unprocessed(events)) == 2


@pytest.mark.usefixtures("events")
def test_rejects_are_kept_when_their_destination_is_not_configured_any_more(
    headwater: Headwater, tmp_path: Path
) -> None:
    (tmp_path / "headwater.yml").write_text("destinations: [{id: new, type: duckdb}]")
    result = headwater("rejects", "replay", "--stage", "destination:dwh")
    assert (result.exit_code, "rejects drop --stage destination:dwh" in result.output) == (1, True)
    assert json.loads(headwater("rejects", "replay", "--all", "--json").stdout) == {"requested": 0}
    assert "dwh:2" in headwater("rejects", "list").output


@pytest.mark.usefixtures("stored")
def test_server_and_pipeline_are_both_asked_when_all_are_replayed(headwater: Headwater) -> None:
    assert headwater("rejects", "replay", "--all").output == (
        "1 replay(s) requested of the server\n3 replay(s) requested of the pipeline\n"
    )


@pytest.mark.usefixtures("stored")
def test_they_are_gone_when_they_are_dropped(headwater: Headwater) -> None:
    assert headwater("rejects", "drop", "--stage", "destination:dwh", "-y").output == "2 reject(s) removed\n"
    assert headwater("rejects", "drop", "--all", input="n\n").exit_code == 1
    assert headwater("rejects", "drop", "--all", "-y").output == "2 reject(s) removed\n"
    assert "no rejects" in headwater("rejects", "list").output


def test_what_became_of_events_is_shown_when_the_status_is_asked_for(
    headwater: Headwater, events: Path
) -> None:
    for number in range(2):
        incoming = Incoming(events)
        incoming.append_wait("web", [b"{}", b"{}", b"{}"])
        incoming.close()
        file = unprocessed(events)[0]
        status = FileStatus.load(file)
        status.mark("dwh", "events", number == 0, rows=1, error="" if number == 0 else "it is unreachable")
        status.count("dwh", events=3, skipped=1, rejected=1)
        status.save()
        if number == 0:
            archive(file)
    found = json.loads(headwater("status", "--json").stdout)["events"]
    dwh, old = found["destinations"]
    assert (dwh["id"], dwh["files"], dwh["events"], dwh["rows"]) == ("dwh", 2, 6, 1)
    assert (dwh["skipped"], dwh["rejected"], dwh["open_rejects"]) == (2, 2, 2)
    assert (old["id"], old["open_rejects"]) == ("old", 1)
    assert found["tokens"][0]["waiting_files"] == 1
    assert found["open"][0]["error"] == "it is unreachable"
    assert found["archived_files"] == 1
    LastCycle(at=AT, seconds=3.0, files=2, done=1, errors=["dwh: away"]).save(events)
    output = headwater("status").output
    assert "last cycle: 2027-01-15 08:00:00Z, 3.0 s, 1 of 2 file(s) done" in output
    assert "events: 1 file(s) wait for the pipeline" in output
    assert "into dwh/events: it is unreachable" in output
    assert "events = rows + skipped + rejected" in output
