"""`check` refuses a configuration if and only if `serve` does; neither ends with another error."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.cli.check import server_findings
from headwater.cli.serve import Server
from headwater.errors import HeadwaterError, SettingsError
from headwater.settings import Settings, parse
from headwater.settings.load import from_tree

EXAMPLE: dict[str, Any] = {
    "data_dir": "data",
    "log_level": "error",
    "gateway": {
        "host": "127.0.0.1",
        "port": 0,
        "tls": None,
        "api_keys": ["key"],
        "admin_token": "token",
        "trusted_proxies": ["10.0.0.0/8"],
        "failed_events": "rejects",
        "max_connections": 10,
        "max_pending_bytes": 33_554_432,
        "shutdown_timeout_seconds": 1.0,
    },
    "log": {"partition_bytes": 1_000_000, "retention_hours": 24.0, "retention_bytes": 100_000_000},
    "outlets": [
        {
            "name": "backend",
            "type": "openlineage",
            "url": "http://127.0.0.1:9",
            "group_by": ["/run/runId"],
            "retry": {"max_seconds": 1.0},
            "headers": {"x-a": "b"},
            "tls": {"ca": "", "verify": True},
        },
        {"name": "copy", "type": "file", "path": "copy.ndjson"},
        {"name": "other", "type": "http", "url": "http://127.0.0.1:9/in", "options": {"event": "$event"}},
        {"name": "set", "type": "dataset", "url": "http://127.0.0.1:9", "api_key": "k", "time": "/eventTime"},
    ],
    "tokens": [{"id": "web", "client_secret": "c", "server_secret": "s", "origins": ["https://a.example"]}],
    "events": {"dir": "events", "rotation_minutes": 5.0},
    "destinations": [{"id": "dwh", "type": "duckdb", "mode": "stream", "only_keys": ["web"]}],
    "graph": {"enabled": True, "retention_days": 90.0},
    "metrics": {"statsd": {"host": "127.0.0.1", "port": 9, "interval_seconds": 60.0}},
}
TEXTS = [
    "",
    " ",
    "x",
    "a.b",
    "a\n",
    "../a",
    "/",
    "/x",
    "é",
    "x" * 300,
    "${KEY}",
    "$x",
    "\0",
    "\ud800",
    "\u2028",
]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**53,
    2**70,
    0.5,
    1e300,
    float("inf"),
    float("nan"),
    *TEXTS,
]
VALUES += [[], {}, ["x"], [[1]], {"x": 1}, {1: 2}, {"": {}}]
HOSTS = ["", "127.0.0.1", "::1", "localhost", "a..b", 5, None, "\0", ["x"], "x" * 70 + ".invalid"]


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value."""
    if path:
        yield path
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield from places(value, (*path, key))


PLACES = [path for path in places(EXAMPLE) if path != ("gateway", "host")]


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[tuple[Any, ...], str, Any]]:
    """One to three changes of the example: a value is replaced or removed, or a key is added."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "host"]))
        if how == "host":
            found.append((("gateway", "host"), "replace", draw(st.sampled_from(HOSTS))))
        else:
            found.append((draw(st.sampled_from(PLACES)), how, draw(st.sampled_from(VALUES))))
    return found


def changed(made: list[tuple[tuple[Any, ...], str, Any]]) -> dict[str, Any]:
    tree = copy.deepcopy(EXAMPLE)
    for path, how, value in made:
        parent: Any = tree
        try:
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed it
        if isinstance(parent, str):
            continue  # an earlier change put a text here, whose characters are no places
        if how == "replace":
            parent[path[-1]] = value
        elif how == "remove":
            del parent[path[-1]]
        elif isinstance(parent, dict):
            parent[f"{path[-1]}s"] = value
    return tree


def refused_by_check(text: str) -> str:
    try:
        found = list(server_findings(parse(text, {})))
    except SettingsError as error:
        return str(error)
    return "; ".join(f"{each.about}: {each.text}" for each in found if each.level == "problem")


def refused_by_serve(text: str) -> str:
    async def start_and_stop() -> None:
        server = Server(parse(text, {}), with_graph=True)
        try:
            await server.start()
        finally:
            await server.close()

    try:
        asyncio.run(start_and_stop())
    except HeadwaterError as error:
        return str(error)
    return ""


def assert_agreement(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.chdir(folder)
    check, serve = refused_by_check(text), refused_by_serve(text)
    assert bool(check) == bool(serve), f"check: {check or 'ok'}\nserve: {serve or 'ok'}"
    return bool(check)


def test_neither_refuses_the_example_when_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not assert_agreement(yaml.safe_dump(EXAMPLE), tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("- /run/runId", "- run.runId", id="pointer"),
        pytest.param("- key\n", "- ${KEY}\n", id="env"),
        pytest.param("log_level: error", "log_level: error\nlog_level: info", id="repeated"),
        pytest.param("tls: null", "tls: {certificate: no.pem, key: no.pem}", id="tls"),
        pytest.param("ca: ''", "ca: no.pem", id="ca"),
        pytest.param("failed_events: rejects", "failed_events: absent", id="handler"),
        pytest.param("event: $event", "event: $evnt", id="template"),
        pytest.param("x-a: b", 'x-a: "b\\nc"', id="header"),
        pytest.param("data_dir: data", f"data_dir: {'d' * 300}", id="long-name"),
        pytest.param("data_dir: data", "data_dir: /proc/data", id="no-folder"),
        pytest.param("dir: events", "dir: /proc/self/mem", id="file"),
        pytest.param("type: file", "type: pigeon", id="type"),
        pytest.param("http://127.0.0.1:9/in", "http://127.0.0.1:99999/in", id="port"),
        pytest.param("http://127.0.0.1:9/in", "http://[::1/in", id="url"),
    ],
)
def test_both_refuse_it_when_a_part_cannot_be_built(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = yaml.safe_dump(EXAMPLE)
    assert text.count(old) == 1
    assert assert_agreement(text.replace(old, new), tmp_path, monkeypatch)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes())
def test_they_agree_when_values_of_the_settings_are_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[tuple[tuple[Any, ...], str, Any]]
) -> None:
    assert_agreement(yaml.safe_dump(changed(made)), tmp_path, monkeypatch)


@pytest.mark.long
@settings(max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes())
def test_they_agree_when_many_values_of_the_settings_are_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[tuple[tuple[Any, ...], str, Any]]
) -> None:
    assert_agreement(yaml.safe_dump(changed(made)), tmp_path, monkeypatch)


@given(st.sampled_from(PLACES), st.sampled_from([*VALUES, *HOSTS]))
def test_only_settings_errors_are_raised_when_one_value_is_anything(
    path: tuple[Any, ...], value: Any
) -> None:
    with contextlib.suppress(SettingsError):
        assert isinstance(from_tree(changed([(path, "replace", value)]), {}), Settings)


@pytest.mark.long
@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_only_settings_errors_are_raised_when_each_value_is_anything(path: tuple[Any, ...]) -> None:
    """Every place of the example takes every value in turn."""
    for value in [*VALUES, *HOSTS]:
        with contextlib.suppress(SettingsError):
            assert isinstance(from_tree(changed([(path, "replace", value)]), {}), Settings)
