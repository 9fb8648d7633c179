from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Headwater

TOKEN = {"id": "web", "client_secret": "c", "server_secret": "s"}
DUCKDB = {"id": "dwh", "type": "duckdb", "path": "warehouse.duckdb"}


def findings(
    headwater: Headwater, folder: Path, settings: dict[str, Any], *more: str
) -> list[tuple[str, str, str]]:
    configured = {"gateway": {"port": 0}, "log": {"retention_bytes": 200_000_000}} | settings
    (folder / "headwater.yml").write_text(json.dumps(configured), encoding="utf-8")
    result = headwater("check", "--json", *more)
    found = json.loads(result.stdout)["findings"]
    reported = [(each["about"], each["level"], each["text"]) for each in found]
    assert (result.exit_code == 1) is any(level == "problem" for _, level, _ in reported)
    return reported


@pytest.mark.parametrize("more", [(), ("--connect",)])
def test_all_is_well_when_tokens_and_destinations_are(
    headwater: Headwater, tmp_path: Path, more: tuple[str, ...]
) -> None:
    destination = DUCKDB | {
        "table_name_template": "{{ event_type | lower | default('events') }}",
        "tables": ["events", "page_*"],
        "only_keys": ["web"],
        "enrichment": [{"name": "ip_lookup", "from": "/source_ip", "to": "/geo"}],
        "mappings": {"fields": [{"src": "/a", "dst": "/b", "action": "move"}]},
    }
    found = findings(headwater, tmp_path, {"tokens": [TOKEN], "destinations": [destination]}, *more)
    levels = {about: level for about, level, _ in found}
    assert {levels[name] for name in ("tokens", "events.dir", "pipeline", "destination dwh")} == {"ok"}
    assert "outlets" not in levels


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        pytest.param(
            {"table_name_template": "a\n{{ b | lowr }}"}, "line 2, column 8: there is no", id="filter"
        ),
        pytest.param({"table_name_template": "{% for x in y %}{% endfor %}"}, "is not possible", id="loop"),
        pytest.param(
            {"table_name_template": "_Headwater-loads"}, "`_headwater_loads` is reserved", id="own table"
        ),
        pytest.param(
            {"unlisted_tables": "orders", "reserved_tables": ["order*"]},
            "change `unlisted_tables`",
            id="default",
        ),
        pytest.param({"type": "pigeon"}, "no destination of the type `pigeon`", id="type"),
        pytest.param({"pahth": "x"}, "`pahth` is not a setting", id="option"),
        pytest.param(
            {"enrichment": [{"name": "moon", "from": "/a", "to": "/b"}]},
            "no enrichment rule `moon`",
            id="rule",
        ),
        pytest.param(
            {
                "mappings": {
                    "fields": [
                        {"src": "/a", "dst": "/x", "action": "move"},
                        {"dst": "/x", "action": "constant", "value": 1},
                    ]
                }
            },
            "`/x` is the place of `fields[0]` already",
            id="twice",
        ),
    ],
)
def test_the_place_is_named_when_a_destination_cannot_work(
    headwater: Headwater, tmp_path: Path, changes: dict[str, Any], part: str
) -> None:
    found = findings(headwater, tmp_path, {"tokens": [TOKEN], "destinations": [DUCKDB | changes]})
    problems = [(about, text) for about, level, text in found if level == "problem"]
    assert [about for about, _ in problems] == ["destination dwh"] * len(problems)
    assert any(part in text for _, text in problems), problems


def test_a_problem_is_reported_when_a_destination_is_unreachable(
    headwater: Headwater, tmp_path: Path
) -> None:
    postgres = {"id": "pg", "type": "postgres", "url": "postgresql://127.0.0.1:1/nowhere"}
    settings = {"tokens": [TOKEN], "destinations": [postgres, DUCKDB]}
    assert not [level for _, level, _ in findings(headwater, tmp_path, settings) if level == "problem"]
    found = findings(headwater, tmp_path, settings, "--connect")
    problems = [(about, text) for about, level, text in found if level == "problem"]
    assert [about for about, _ in problems] == ["destination pg"]
    assert "no connection to Postgres" in problems[0][1]


def test_a_warning_is_given_when_half_of_it_is_missing(headwater: Headwater, tmp_path: Path) -> None:
    found = findings(headwater, tmp_path, {"tokens": [TOKEN]})
    assert ("destinations", "warning") in [(about, level) for about, level, _ in found]
    found = findings(headwater, tmp_path, {"destinations": [DUCKDB]})
    assert ("tokens", "warning") in [(about, level) for about, level, _ in found]
    found = findings(headwater, tmp_path, {"tokens": [TOKEN], "gateway": {"port": 0, "host": "0.0.0.0"}})
    assert any("in clear text" in text for about, _, text in found if about == "tokens")


def test_a_file_in_the_way_is_named_when_the_events_cannot_go_there(
    headwater: Headwater, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    found = findings(headwater, tmp_path, {"tokens": [TOKEN], "events": {"dir": str(tmp_path / "file")}})
    assert ("events.dir", "problem") in [(about, level) for about, level, _ in found]


def test_a_problem_is_reported_when_the_brokers_or_the_object_store_are_unreachable(
    headwater: Headwater, tmp_path: Path
) -> None:
    settings = {
        "tokens": [TOKEN],
        "events": {"kafka": {"servers": "127.0.0.1:1"}},
        "destinations": [DUCKDB | {"mode": "stream"}],
        "pipeline": {"staging_url": "nothing://key:secret@bucket/folder"},
    }
    found = {about: (level, text) for about, level, text in findings(headwater, tmp_path, settings)}
    assert found["events.kafka"] == ("ok", "127.0.0.1:1")
    level, text = found["pipeline.staging_url"]
    assert level == "problem"
    assert "secret" not in text
    reported = findings(headwater, tmp_path, settings, "--connect")
    assert [level for about, level, _ in reported if about == "events.kafka"] == ["problem"]


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        pytest.param({"table_name_template": "{{ event_type }}"}, True, id="a field"),
        pytest.param({"table_name_template": "{{ event_type }}", "tables": ["a*"]}, False, id="a list"),
        pytest.param({"table_name_template": "{{ event_type }}", "only_keys": ["s"]}, False, id="servers"),
        pytest.param({}, False, id="one table"),
    ],
)
def test_a_warning_names_the_list_when_browsers_can_name_tables(
    headwater: Headwater, tmp_path: Path, changes: dict[str, Any], is_open: bool
) -> None:
    tokens = [TOKEN, {"id": "s", "server_secret": "s2"}]
    found = findings(headwater, tmp_path, {"tokens": tokens, "destinations": [DUCKDB | changes]})
    [(_, level, text)] = [each for each in found if each[0] == "destination dwh"]
    assert level == ("warning" if is_open else "ok")
    assert ("tables:" in text) is is_open
