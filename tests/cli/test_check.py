from __future__ import annotations

import json
import resource
import socket
from pathlib import Path
from typing import Any

import apsw
import pytest

from headwater.cli.server.exposure import exposures
from headwater.log.queue.log import Log
from headwater.log.rejects.store import RejectStore
from headwater.settings.load import from_tree
from headwater.testing import OpenLineageServer

from .conftest import Headwater


def configure(folder: Path, settings: dict[str, Any]) -> None:
    (folder / "headwater.yml").write_text(json.dumps(settings), encoding="utf-8")


def findings(headwater: Headwater, *arguments: str) -> dict[str, tuple[str, str]]:
    found = json.loads(headwater("check", "--json", *arguments).stdout)
    levels = {finding["about"]: (finding["level"], finding["text"]) for finding in found["findings"]}
    assert found["ok"] is not any(level == "problem" for level, _ in levels.values())
    return levels


def test_everything_is_ok_when_the_configuration_is(headwater: Headwater, tmp_path: Path) -> None:
    outlet = {"name": "copy", "type": "file", "path": str(tmp_path / "copy.ndjson")}
    configure(
        tmp_path, {"gateway": {"port": 0}, "log": {"retention_bytes": 200_000_000}, "outlets": [outlet]}
    )
    result = headwater("check")
    assert result.exit_code == 0
    assert [line.split(":")[0] for line in result.output.splitlines()] == ["ok"] * 4
    assert not (tmp_path / "headwater-data").exists()


def test_the_limit_of_open_files_is_compared_when_the_settings_need_more(
    headwater: Headwater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, {"gateway": {"port": 0}, "outlets": [{"name": "a", "type": "console"}]})
    assert "open files" not in findings(headwater)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    level, text = findings(headwater)["open files"]
    assert level == "warning"
    assert "may open 1,170 files, and the limit is 256" in text


def test_every_problem_is_found_when_there_are_several(headwater: Headwater, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as other:
        configure(
            tmp_path,
            {
                "data_dir": str(tmp_path / "file"),
                "gateway": {
                    "port": other.getsockname()[1],
                    "failed_events": "unknown",
                    "tls": {"certificate": "no.pem", "key": "no.pem"},
                },
                "outlets": [
                    {"name": "a", "type": "pigeon"},
                    {"name": "b", "type": "openlineage", "ulr": "http://x"},
                ],
            },
        )
        assert headwater("check").exit_code == 1
        found = findings(headwater)
    assert {about: level for about, (level, _) in found.items()} == dict.fromkeys(
        ("data_dir", "gateway", "gateway.tls", "gateway.failed_events", "outlet a", "outlet b"), "problem"
    )
    assert "did you mean `url`?" in found["outlet b"][1]
    assert "rejects" in found["gateway.failed_events"][1]


def test_a_warning_is_given_when_there_is_no_outlet(headwater: Headwater, tmp_path: Path) -> None:
    configure(tmp_path, {"gateway": {"port": 0}})
    assert findings(headwater)["outlets"][0] == "warning"


def test_a_warning_is_given_when_the_disk_is_smaller_than_the_retention(
    headwater: Headwater, tmp_path: Path
) -> None:
    configure(tmp_path, {"gateway": {"port": 0}, "log": {"retention_bytes": 1 << 50}})
    level, text = findings(headwater)["data_dir"]
    assert level == "warning"
    assert "507" in text


def test_a_warning_is_given_when_keys_travel_in_the_clear(headwater: Headwater, tmp_path: Path) -> None:
    configure(tmp_path, {"gateway": {"port": 0, "host": "0.0.0.0", "api_keys": ["k"]}})
    assert findings(headwater)["gateway.tls"][0] == "warning"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "gateway.example"])
def test_a_warning_is_given_for_each_missing_key_when_other_machines_can_reach_the_port(host: str) -> None:
    def of(**gateway: Any) -> list[str]:
        return list(exposures(from_tree({"gateway": {"host": host, **gateway}}, {})))

    keys, token = of()
    assert "anyone who reaches the port can post" in keys
    assert "`gateway.admin_token` is empty" in token
    assert of(api_keys=["k"], admin_token="t") == []
    assert of(api_keys=["k"]) == [token]
    assert of(admin_token="t") == [keys]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_no_warning_is_given_when_only_this_machine_can_reach_the_port(host: str) -> None:
    assert list(exposures(from_tree({"gateway": {"host": host}}, {}))) == []


def test_exposure_is_among_the_findings_when_there_is_no_key(headwater: Headwater, tmp_path: Path) -> None:
    configure(tmp_path, {"gateway": {"port": 0, "host": "0.0.0.0"}})
    assert findings(headwater)["exposure"][0] == "warning"


def test_the_port_is_not_tried_when_the_server_is_running(headwater: Headwater, tmp_path: Path) -> None:
    log = Log.open(tmp_path / "headwater-data" / "log")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            configure(tmp_path, {"gateway": {"port": server.getsockname()[1]}})
            found = findings(headwater)
    finally:
        log.close()
    assert found["data_dir"][1].endswith("is in use by a running server")
    assert found["gateway"][0] == "ok"


@pytest.mark.parametrize(("is_up", "level"), [(True, "ok"), (False, "problem")])
def test_each_outlet_is_tried_when_connecting_is_asked_for(
    headwater: Headwater, tmp_path: Path, is_up: bool, level: str
) -> None:
    with OpenLineageServer() as backend:
        outlet = {"name": "backend", "type": "openlineage", "url": backend.url}
        configure(tmp_path, {"gateway": {"port": 0}, "outlets": [outlet]})
        if is_up:
            assert findings(headwater, "--connect")["outlet backend"][0] == level
            assert backend.wait_until(lambda: backend.connections == 1)
            assert backend.events() == []
    if not is_up:
        assert findings(headwater, "--connect")["outlet backend"][0] == level


@pytest.mark.parametrize("name", ["log/index.db", "rejects.db", "events/queue.dst=live/index.db"])
def test_the_schema_is_named_when_a_start_would_migrate_it_or_refuse_it(
    headwater: Headwater, tmp_path: Path, name: str
) -> None:
    data = tmp_path / "headwater-data"
    for folder in (data / "log", data / "events" / "queue.dst=live"):
        log = Log.open(folder)
        log.reader("slow")
        log.close()
    RejectStore(data / "rejects.db", max_bytes=1000).close()
    found = json.loads(headwater("check", "--json").stdout)["findings"]
    assert [each for each in found if each["about"] == "schema"] == []
    for version, level, text in ((2, "warning", "from schema version 2 to 3"), (99, "problem", "version 99")):
        connection = apsw.Connection(str(data / name))
        connection.pragma("user_version", version)
        connection.close()
        before = (data / name).read_bytes()
        found = json.loads(headwater("check", "--json").stdout)["findings"]
        [schema] = [each for each in found if each["about"] == "schema"]
        assert schema["level"] == level
        assert text in schema["text"]
        assert (data / name).read_bytes() == before
