"""Relative paths in a configuration file that lies in another folder than the working directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headwater.delivery.outlets.base import load_outlet
from headwater.delivery.outlets.file import FileOutlet
from headwater.destinations.base import load_destination
from headwater.settings import load
from headwater.testing.processes import PythonProcess

from .conftest import Headwater

FILE = "other/x.yml"
SETTINGS: dict[str, Any] = {
    "data_dir": "data",
    "gateway": {"port": 0},
    "tokens": [{"id": "web", "client_secret": "c", "server_secret": "s"}],
    "outlets": [{"name": "copy", "type": "file", "path": "copy/events.ndjson"}],
    "destinations": [{"id": "duck", "type": "duckdb", "path": "tables.duckdb"}],
}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The folder of the configuration file, below the working directory."""
    (tmp_path / "other").mkdir()
    write(tmp_path, SETTINGS)
    return tmp_path / "other"


def write(folder: Path, settings: dict[str, Any]) -> None:
    (folder / FILE).write_text(json.dumps(settings), encoding="utf-8")


def test_paths_are_relative_to_the_file_when_it_is_in_another_folder(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        SETTINGS
        | {
            "gateway": {"tls": {"certificate": "a.pem", "key": "/etc/b.pem"}},
            "events": {
                "dir": "../events",
                "kafka": {"servers": "b:1", "config": {"ssl.ca.location": "c.pem", "client.id": "d"}},
            },
            "pipeline": {"city_database": "${env.BASE}", "lock": {"dir": "locks"}, "staging_dir": "staged"},
            "destinations": [
                {"id": "duck", "type": "duckdb", "path": "x.duckdb", "mode": "stream"},
                {"id": "lake", "type": "delta", "path": "s3://bucket/x", "mode": "stream"},
            ],
        },
    )
    monkeypatch.chdir(tmp_path)
    settings = load(FILE, {"BASE": "city.mmdb"})
    assert settings.data_dir == "other/data"
    assert settings.gateway.tls is not None
    assert (settings.gateway.tls.certificate, settings.gateway.tls.key) == ("other/a.pem", "/etc/b.pem")
    assert settings.events_dir.resolve() == tmp_path / "events"
    assert settings.events.kafka is not None
    assert settings.events.kafka.config == {"ssl.ca.location": "other/c.pem", "client.id": "d"}
    assert settings.pipeline.city_database == "other/city.mmdb"
    assert settings.locks_dir == Path("other/locks")
    assert settings.staging_dir == other / "staged"
    paths = [vars(load_destination(each))["options"].path for each in settings.destinations]
    assert paths == ["other/x.duckdb", "s3://bucket/x"]
    outlet = load_outlet(settings.outlets[0])
    assert isinstance(outlet, FileOutlet)
    assert outlet.options.path == "other/copy/events.ndjson"


def test_paths_of_variables_are_relative_to_the_working_directory(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outlets = "[{name: a, type: file, path: a.ndjson}]"
    settings = load(FILE, {"HEADWATER_DATA_DIR": "here", "HEADWATER_OUTLETS": outlets})
    assert settings.data_dir == "here"
    (outlet,) = (load_outlet(each) for each in settings.outlets)
    assert outlet.options.path == "a.ndjson"


def test_the_data_folder_is_beside_the_file_when_none_is_set(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {})
    monkeypatch.chdir(tmp_path)
    assert load(FILE, {}).data_dir == "other/headwater-data"
    monkeypatch.chdir(other)
    assert load("x.yml", {}).data_dir == "./headwater-data"


def test_the_server_uses_the_files_folder_when_it_starts_elsewhere(tmp_path: Path, other: Path) -> None:
    server = PythonProcess(tmp_path, "serve", ["-m", "headwater", "serve", "-c", FILE])
    with server.start():
        event = f"{server.url}/api/v1/s2s/event"
        assert httpx2.post(event, json={"n": 1}, headers={"x-auth-token": "s"}).status_code == 200
        assert server.stop() == 0
    assert (other / "data" / "events").is_dir()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other", "serve.txt"]


def test_check_looks_into_the_files_folder_when_it_is_another(
    tmp_path: Path, other: Path, headwater: Headwater
) -> None:
    (other / "data").write_text("in the way", encoding="utf-8")
    result = headwater("check", "-c", FILE)
    assert result.exit_code == 1
    assert "other/data" in result.output


def test_the_pipeline_finds_its_files_when_the_configuration_is_elsewhere(
    tmp_path: Path, other: Path, headwater: Headwater
) -> None:
    incoming = other / "data" / "events" / "incoming"
    incoming.mkdir(parents=True)
    (incoming / "incoming.tok=web-2026-01-01T00-00-01.000.log").write_text("{}\n", encoding="utf-8")
    result = headwater("pipeline", "verify", "-c", FILE, "--json")
    assert result.exit_code == 0, result.output
    assert "other/data" in result.output


def test_the_start_refuses_when_the_data_lies_where_earlier_releases_put_it(
    tmp_path: Path, other: Path, headwater: Headwater
) -> None:
    (tmp_path / "data").mkdir()
    result = headwater("check", "-c", FILE)
    assert result.exit_code != 0
    assert f"other/data does not exist, but {tmp_path / 'data'} does" in " ".join(result.output.split())
    (tmp_path / "data").rename(other / "data")
    assert "does not exist" not in headwater("check", "-c", FILE).output
