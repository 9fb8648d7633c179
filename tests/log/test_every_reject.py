"""The rejects of all stages as one list: the store of gateway and outlets, and the files of destinations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headwater.errors import HeadwaterError, RejectNotFound
from headwater.log.files.layout import unprocessed
from headwater.log.rejects.destination_file import DestinationRejects, EventError
from headwater.log.rejects.rejects import Rejects, rejects_path
from headwater.log.rejects.store import NewReject, RejectStore
from headwater.settings import DestinationSettings, Settings

BIG = 1 << 30
NOW = 1_800_000_000.0


def settings_of(folder: Path) -> Settings:
    return Settings(
        data_dir=str(folder),
        destinations=(
            DestinationSettings(id="dwh", type="duckdb"),
            DestinationSettings(id="lake", type="duckdb"),
        ),
    )


def reject_lines(settings: Settings, destination: str, *numbers: int) -> None:
    errors = [
        EventError.of(b'{"n":%d}' % n, "no table", destination_id=destination, source=f"f:{n}", at=NOW)
        for n in numbers
    ]
    DestinationRejects(settings.events_dir).append(destination, errors)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Rejects of the gateway and of an outlet in the store, and of three destinations in files."""
    settings = settings_of(tmp_path)
    store = RejectStore(rejects_path(settings), max_bytes=BIG)
    store.add("gateway", [NewReject("no `run`", b'{"a":1}'), NewReject("not JSON", b"{\xff")])
    store.add("outlet:a", [NewReject("422", b"{}", position=7, received_at=5.0)])
    store.close()
    reject_lines(settings, "dwh", 1, 2)
    reject_lines(settings, "lake", 3)
    reject_lines(settings, "removed", 4)
    return settings


@pytest.fixture
def rejects(settings: Settings) -> Iterator[Rejects]:
    opened = Rejects.open(settings)
    yield opened
    opened.close()


ALL = ["1", "2", "3", "dwh:1", "dwh:2", "lake:1", "removed:1"]


def test_all_stages_are_counted_when_rejects_are_in_store_and_files(rejects: Rejects) -> None:
    assert rejects.counts() == {
        "gateway": 2,
        "outlet:a": 1,
        "destination:dwh": 2,
        "destination:lake": 1,
        "destination:removed": 1,
    }


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 50])
def test_every_reject_is_listed_once_when_pages_have_any_length(rejects: Rejects, limit: int) -> None:
    found: list[str] = []
    while page := rejects.list(limit=limit, after=found[-1] if found else ""):
        assert len(page) <= limit
        found += [each.id for each in page]
    assert found == ALL


@pytest.mark.parametrize(
    ("stage", "ids"),
    [("gateway", ["1", "2"]), ("outlet:a", ["3"]), ("outlet:b", []), ("destination:dwh", ["dwh:1", "dwh:2"])],
)
def test_only_a_stage_is_listed_when_it_is_named(rejects: Rejects, stage: str, ids: list[str]) -> None:
    assert [each.id for each in rejects.list(stage)] == ids


def test_a_reject_is_shown_with_its_event_when_it_is_got_by_id(rejects: Rejects) -> None:
    stored, broken, of_file = rejects.get("1"), rejects.get("2"), rejects.get("dwh:2")
    assert (stored.stage, stored.reason, stored.body, stored.is_single) == (
        "gateway",
        "no `run`",
        b'{"a":1}',
        True,
    )
    assert rejects.get("3").source == "position 7"
    assert (of_file.stage, of_file.body, of_file.source, of_file.is_single) == (
        "destination:dwh",
        b'{"n":2}',
        "f:2",
        False,
    )
    decoded = msgspec.json.decode(msgspec.json.encode([each.as_json() for each in (stored, broken, of_file)]))
    assert [each.get("body", each.get("event")) for each in decoded] == [{"a": 1}, "{\ufffd", {"n": 2}]
    assert decoded[2]["id"] == "dwh:2"


def test_an_event_that_is_no_json_is_shown_as_text_when_a_destination_rejected_it(settings: Settings) -> None:
    error = EventError.of(b"{bad", "malformed", destination_id="dwh", source="f:9", at=NOW)
    DestinationRejects(settings.events_dir).append("dwh", [error])
    rejects = Rejects.open(settings, read_only=True)
    assert rejects.get("dwh:3").as_json()["event"] == "{bad"
    rejects.close()


@pytest.mark.parametrize(
    "id", ["4", "0", "99999999999999999999", "dwh:3", "dwh:0", "none:1", "dwh:x", "", "x", "²"]
)
def test_it_is_not_found_when_no_reject_has_the_id(rejects: Rejects, id: str) -> None:
    with pytest.raises(RejectNotFound) as error:
        rejects.get(id)
    assert "headwater rejects list" in error.value.hint


def test_replays_are_requested_of_the_stage_that_carries_them_out_when_all_are(
    settings: Settings, rejects: Rejects
) -> None:
    assert rejects.request_replay() == (3, 3)  # those of `removed` stay
    assert [each.replay_requested for each in rejects.list("gateway")] == [True, True]
    assert {file.destination_id for file in unprocessed(settings.events_dir)} == {"dwh", "lake"}
    assert rejects.counts() == {"gateway": 2, "outlet:a": 1, "destination:removed": 1}


def test_only_these_are_replayed_when_ids_or_a_stage_are_named(rejects: Rejects) -> None:
    assert rejects.request_replay([2]) == (1, 0)
    assert rejects.request_replay(stage="outlet:a") == (1, 0)
    assert rejects.request_replay(stage="destination:dwh") == (0, 2)
    assert rejects.request_replay(stage="destination:dwh") == (0, 0)
    assert [each.replay_requested for each in rejects.list("gateway")] == [False, True]


def test_a_replay_is_refused_with_the_way_out_when_the_destination_is_gone(rejects: Rejects) -> None:
    with pytest.raises(HeadwaterError, match="no longer have the destination removed") as error:
        rejects.request_replay(stage="destination:removed")
    assert "headwater rejects drop --stage destination:removed" in error.value.hint
    assert rejects.counts()["destination:removed"] == 1
    with pytest.raises(HeadwaterError, match="no destination `other`") as error:
        rejects.request_replay(stage="destination:other")
    assert error.value.hint == "Known: dwh, lake, removed."


def test_they_are_gone_when_they_are_dropped(rejects: Rejects) -> None:
    assert rejects.drop([1]) == 1
    assert rejects.drop(stage="destination:removed") == 1
    assert rejects.drop(stage="destination:lake") == 1
    assert rejects.drop(stage="destination:lake") == 0
    assert rejects.drop() == 4
    assert rejects.counts() == {}


def test_the_store_is_only_read_when_it_is_opened_to_look(settings: Settings) -> None:
    path = rejects_path(settings)
    before = path.read_bytes()
    rejects = Rejects.open(settings, read_only=True)
    assert [each.id for each in rejects.list()] == ALL
    rejects.close()
    assert path.read_bytes() == before


def test_rejects_of_destinations_are_listed_when_only_a_pipeline_runs(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    reject_lines(settings, "dwh", 1)
    rejects = Rejects.open(settings)
    assert rejects.counts() == {"destination:dwh": 1}
    assert [each.id for each in rejects.list()] == ["dwh:1"]
    assert rejects.request_replay() == (0, 1)
    for call in (lambda: rejects.get("1"), lambda: rejects.drop(stage="gateway")):
        with pytest.raises(HeadwaterError, match="does not exist"):
            call()
    rejects.close()


def test_it_is_refused_when_nothing_was_served_from_the_folder(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match="nothing was ever served") as error:
        Rejects.open(settings_of(tmp_path))
    assert "headwater serve" in error.value.hint
