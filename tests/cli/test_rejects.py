from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.rejects.store import NewReject, RejectStore

from .conftest import Headwater


@pytest.fixture
def rejects(tmp_path: Path) -> Iterator[RejectStore]:
    """Two of the gateway, one of them no JSON at all, and one of an outlet; open, as by a running server."""
    store = RejectStore(tmp_path / "headwater-data" / "rejects.db", max_bytes=1_000_000)
    store.add(
        "gateway",
        [
            NewReject("run.runId is missing", b'{"a":1}', details=[{"path": "/run", "reason": "missing"}]),
            NewReject("not JSON " + "x" * 100, b"\xff{"),
        ],
    )
    store.add("outlet:marquez", [NewReject("422", b'{"b":2}', position=7, received_at=1_700_000_000.0)])
    yield store
    store.close()


@pytest.mark.usefixtures("rejects")
def test_every_reject_has_a_line_when_they_are_listed(headwater: Headwater) -> None:
    result = headwater("rejects", "list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == ["id", "1", "2", "3"]
    assert "run.runId is missing" in result.output
    assert "x…" in result.output


@pytest.mark.usefixtures("rejects")
def test_only_the_stages_own_are_listed_when_it_is_named(headwater: Headwater) -> None:
    found = json.loads(headwater("rejects", "list", "--stage", "outlet:marquez", "--json").stdout)
    assert [(reject["id"], reject["position"], reject["body"]) for reject in found] == [(3, 7, {"b": 2})]


@pytest.mark.usefixtures("rejects")
def test_the_next_page_is_named_when_the_limit_is_reached(headwater: Headwater) -> None:
    result = headwater("rejects", "list", "--limit", "2")
    assert "rejects list --after 2" in result.output
    assert [line.split()[0] for line in headwater("rejects", "list", "--after", "2").output.splitlines()] == [
        "id",
        "3",
    ]


def test_reason_details_and_event_are_shown_when_one_is_asked_for(
    headwater: Headwater, rejects: RejectStore
) -> None:
    output = headwater("rejects", "show", "1").output
    assert "reason: run.runId is missing" in output
    assert "path: /run; reason: missing" in output
    assert '"a": 1' in output
    assert "position 7, received at 2023-11-14" in headwater("rejects", "show", "3").output
    assert rejects.counts() == {"gateway": 2, "outlet:marquez": 1}


@pytest.mark.usefixtures("rejects")
def test_the_event_is_text_when_it_is_not_json(headwater: Headwater) -> None:
    assert json.loads(headwater("rejects", "show", "2", "--json").stdout)["body"] == "\ufffd{"
    assert "\ufffd{" in headwater("rejects", "show", "2").output


@pytest.mark.usefixtures("rejects")
def test_the_id_is_named_when_there_is_no_such_reject(headwater: Headwater) -> None:
    for arguments in (("show", "99"), ("replay", "99"), ("drop", "99", "--yes")):
        result = headwater("rejects", *arguments)
        assert result.exit_code == 1
        assert "99" in result.output


@pytest.mark.parametrize(
    ("arguments", "requested"),
    [
        pytest.param(("1", "3"), [1, 3], id="ids"),
        pytest.param(("--stage", "gateway"), [1, 2], id="stage"),
        pytest.param(("--all",), [1, 2, 3], id="all"),
    ],
)
def test_the_server_sees_the_request_when_a_replay_is_asked_for(
    headwater: Headwater, rejects: RejectStore, arguments: tuple[str, ...], requested: list[int]
) -> None:
    result = headwater("rejects", "replay", *arguments)
    assert result.exit_code == 0
    assert f"{len(requested)} replay(s) requested" in result.output
    seen = [*rejects.requested("gateway"), *rejects.requested("outlet:marquez")]
    assert [reject.id for reject in seen] == requested


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        pytest.param(("1", "3"), [2], id="ids"),
        pytest.param(("--stage", "gateway"), [3], id="stage"),
        pytest.param(("--all",), [], id="all"),
    ],
)
def test_they_are_gone_when_they_are_dropped(
    headwater: Headwater, rejects: RejectStore, arguments: tuple[str, ...], left: list[int]
) -> None:
    result = headwater("rejects", "drop", *arguments, input="y\n")
    assert result.exit_code == 0
    assert [reject.id for reject in rejects.list()] == left


def test_nothing_is_dropped_when_the_question_is_not_answered_with_yes(
    headwater: Headwater, rejects: RejectStore
) -> None:
    assert headwater("rejects", "drop", "--all", input="n\n").exit_code == 1
    assert len(rejects.list()) == 3


@pytest.mark.usefixtures("rejects")
@pytest.mark.parametrize("arguments", [(), ("1", "--all")], ids=["none", "both"])
def test_it_is_refused_when_it_is_not_clear_which_are_meant(
    headwater: Headwater, arguments: tuple[str, ...]
) -> None:
    for name in ("replay", "drop"):
        result = headwater("rejects", name, *arguments)
        assert result.exit_code == 2
        assert "Give either ids, or --all, --stage STAGE" in result.output


@pytest.mark.usefixtures("rejects")
@pytest.mark.parametrize(
    ("id", "hint"),
    [("dwh:1", "--stage destination:dwh"), ("first", "`headwater rejects list` shows them"), ("²", "list")],
)
def test_the_way_out_is_named_when_an_id_cannot_be_replayed_alone(
    headwater: Headwater, id: str, hint: str
) -> None:
    for name in ("replay", "drop"):
        result = headwater("rejects", name, id)
        assert result.exit_code == 2
        assert hint in " ".join(result.output.split())


@pytest.mark.usefixtures("rejects")
def test_the_stages_are_named_when_one_has_no_rejects(headwater: Headwater) -> None:
    output = headwater("rejects", "list", "--stage", "nope").output
    assert output.startswith("no rejects of nope; stages with rejects: gateway")


def test_no_file_is_made_when_there_is_none(headwater: Headwater, tmp_path: Path) -> None:
    result = headwater("rejects", "list")
    assert result.exit_code == 1
    assert "rejects.db does not exist" in result.output
    assert not (tmp_path / "headwater-data").exists()


def test_it_says_so_when_there_are_no_rejects(headwater: Headwater, tmp_path: Path) -> None:
    RejectStore(tmp_path / "headwater-data" / "rejects.db", max_bytes=1_000_000).close()
    assert headwater("rejects", "list").output == "no rejects\n"
    assert headwater("rejects", "list", "--json").stdout == "[]\n"


@pytest.mark.parametrize("arguments", [("rejects", "list"), ("rejects", "show", "1")], ids=" ".join)
def test_a_damaged_store_is_left_to_the_server_when_a_command_only_looks(
    headwater: Headwater, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    path = tmp_path / "headwater-data" / "rejects.db"
    RejectStore(path, max_bytes=1_000_000).close()
    path.write_bytes(b"not a database" * 1000)
    (path.parent / "events").mkdir()  # something was served from this folder
    result = headwater(*arguments)
    assert result.exit_code == 1
    assert "is damaged" in result.output
    assert path.read_bytes().startswith(b"not a database")
    assert not (path.parent / "damaged").exists()


@pytest.mark.usefixtures("rejects")
def test_only_those_with_the_reason_and_age_are_meant_when_these_are_given(headwater: Headwater) -> None:
    listed = headwater("rejects", "list", "--reason", "RUNID", "--json")
    assert [each["id"] for each in json.loads(listed.stdout)] == [1]
    assert json.loads(headwater("rejects", "list", "--older", "1h", "--json").stdout) == []
    none = headwater("rejects", "drop", "--older", "1d", "-y", "--json")
    assert json.loads(none.stdout) == {"dropped": 0}
    replayed = headwater("rejects", "replay", "--reason", "422", "--json")
    assert json.loads(replayed.stdout) == {"requested": 1}
    dropped = headwater("rejects", "drop", "--reason", "json", "--stage", "gateway", "-y", "--json")
    assert json.loads(dropped.stdout) == {"dropped": 1}
    left = json.loads(headwater("rejects", "list", "--json").stdout)
    assert [each["id"] for each in left] == [1, 3]
    assert headwater("rejects", "drop", "--reason", "x", "--stage", "destination:a", "-y").exit_code == 2
    assert headwater("rejects", "drop", "1", "--reason", "x", "-y").exit_code == 2
    assert headwater("rejects", "list", "--after", "1", "--reason", "x").exit_code == 2


@pytest.mark.usefixtures("rejects")
def test_every_reject_is_a_line_of_json_when_they_are_exported(headwater: Headwater, tmp_path: Path) -> None:
    done = headwater("rejects", "export", "-o", "out.ndjson")
    assert done.exit_code == 0
    assert "3 reject(s) exported" in done.output
    lines = [json.loads(line) for line in (tmp_path / "out.ndjson").read_bytes().splitlines()]
    assert [(each["id"], each["stage"]) for each in lines] == [
        (1, "gateway"),
        (2, "gateway"),
        (3, "outlet:marquez"),
    ]
    assert lines[0]["body"] == {"a": 1}
    assert headwater("rejects", "export", "--reason", "422").output.count("\n") == 2


def test_all_are_gone_in_few_transactions_when_20000_are_dropped(
    headwater: Headwater, tmp_path: Path
) -> None:
    store = RejectStore(tmp_path / "headwater-data" / "rejects.db", max_bytes=1 << 30)
    store.add("gateway", [NewReject(f"reason {n % 2}", b"{}") for n in range(20_000)])
    dropped = headwater("rejects", "drop", "--reason", "reason 1", "-y", "--json")
    assert json.loads(dropped.stdout) == {"dropped": 10_000}
    assert json.loads(headwater("rejects", "drop", "--all", "-y", "--json").stdout) == {"dropped": 10_000}
    assert store.counts() == {}
    store.close()
