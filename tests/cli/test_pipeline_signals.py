"""Signals of the pipeline's processes and of the supervisor, as real processes with Spark."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.log.files.archive import archive
from headwater.log.files.incoming import Incoming
from headwater.log.files.layout import unprocessed
from headwater.testing.processes import HeadwaterProcess
from tests.support.waiting import wait_until

HARMLESS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT)
SHORT = "from headwater.cli import pipeline; pipeline.STOP_SECONDS = 1.0;"
MAIN = "from headwater.cli.main import main; main()"


def settings(**destination: Any) -> dict[str, Any]:
    given = {"id": "dwh", "type": "duckdb", "options": {"path": "dwh.duckdb"}} | destination
    return {
        "gateway": {"port": 0},
        "data_dir": "data",
        "tokens": [{"id": "web", "server_secret": "s"}],
        "destinations": [given],
    }


def put(folder: Path) -> None:
    incoming = Incoming(folder / "data" / "events")
    incoming.append_wait("web", [b'{"n": 1}'])
    incoming.close()


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A database that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def goes_on(process: HeadwaterProcess) -> None:
    """Check that signals which are not for stopping change nothing."""
    for number in HARMLESS:
        process.send_signal(number)
    wait_until(lambda: "Thread MainThread: " in process.output)
    for number in HARMLESS[:2]:
        assert f"{number.name} changes nothing" in process.output
    assert process.is_running


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "mode", "ready", "stops"),
    [
        (("pipeline", "run", "--follow"), "batch", "as soon as it is complete", signal.SIGINT),
        (("pipeline", "stream"), "stream", "streaming into dwh", signal.SIGTERM),
    ],
)
def test_only_the_signals_for_stopping_stop_it_when_a_pipeline_runs(
    tmp_path: Path, command: tuple[str, ...], mode: str, ready: str, stops: signal.Signals
) -> None:
    process = HeadwaterProcess(tmp_path, *command, settings=settings(mode=mode))
    with process.start():
        wait_until(lambda: ready in process.output, "the pipeline", 240)
        goes_on(process)
        process.send_signal(stops)
        assert process.wait(120) == 0, process.tail()
        assert f"Stopping on {stops.name}" in process.output


@pytest.mark.long
@pytest.mark.parametrize("command", ["run", "backfill"])
def test_the_process_ends_and_names_what_hangs_when_a_load_hangs(
    tmp_path: Path, silent: socket.socket, command: str
) -> None:
    arguments = ["pipeline", "run"]
    put(tmp_path)
    if command == "backfill":
        [file] = unprocessed(tmp_path / "data" / "events")
        archive(file)
        arguments = ["pipeline", "backfill", "--destination", "dwh", "--since", "2026-11-16"]
    url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/dwh?connect_timeout=600"
    process = HeadwaterProcess(
        tmp_path,
        *arguments,
        settings=settings(type="postgres", options={"url": url}),
        interpreter=("-c", SHORT + MAIN),
    )
    with process.start():
        silent.settimeout(240)
        client, _ = silent.accept()
        with client:
            goes_on(process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 1, process.tail()
    assert "The stop takes longer than 1 s" in process.output
    assert "Thread MainThread: " in process.output
