"""`headwater up`: parts are restarted, stop in order, and say what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headwater import settings
from headwater.cli.up import ALL_READY, FAILED, MISCONFIGURED, Part, Readiness, Supervisor, parts
from tests.support.server import EVENT
from tests.support.waiting import wait_until

DEADLINE_SECONDS = 60.0


class Up:
    """A real `headwater up` in a folder of its own."""

    def __init__(self, folder: Path, **more: Any) -> None:
        (folder / "headwater.yml").write_text(json.dumps({"gateway": {"port": 0}} | more), encoding="utf-8")
        self._lines = folder / "lines.txt"
        with self._lines.open("wb") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headwater", "up"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stderr=lines,
            )

    @property
    def output(self) -> str:
        return self._lines.read_text(encoding="utf-8")

    def urls(self) -> list[str]:
        return re.findall(r"headwater listens on (http[^, ]+),", self.output)

    def pid_of(self, command: str) -> int:
        """The process of a part, found among the children."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            if command.encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return int(child)
        raise AssertionError(f"no {command} among {children}")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.terminate()
        running.process.wait(DEADLINE_SECONDS)


def post(url: str) -> int:
    return httpx2.post(f"{url}/api/v1/lineage", json=EVENT).status_code


def test_the_gateway_is_started_again_when_it_is_killed(up: Up) -> None:
    first = wait_until(up.urls)[0]
    assert post(first) == 200
    os.kill(up.pid_of("serve"), signal.SIGKILL)
    second = wait_until(lambda: up.urls()[1:])[0]
    assert post(second) == 200
    assert "gateway ended (by SIGKILL); it restarts in 1 s" in up.output
    up.process.terminate()
    assert up.process.wait(DEADLINE_SECONDS) == 0
    assert "Stopping on SIGTERM" in up.output
    assert re.search(r"^gateway \| .* Stopped\.$", up.output, re.MULTILINE)


def test_the_folder_is_free_again_when_the_supervisor_itself_is_killed(up: Up, tmp_path: Path) -> None:
    wait_until(up.urls)
    gateway = up.pid_of("serve")
    up.process.kill()
    up.process.wait(DEADLINE_SECONDS)
    wait_until(lambda: not Path(f"/proc/{gateway}").exists())
    again = Up(tmp_path)
    assert post(wait_until(again.urls)[0]) == 200
    again.process.terminate()
    assert again.process.wait(DEADLINE_SECONDS) == 0


def test_lines_stay_json_when_the_configuration_asks_for_it(tmp_path: Path) -> None:
    up = Up(tmp_path, log_format="json")
    wait_until(up.urls)
    up.process.terminate()
    assert up.process.wait(DEADLINE_SECONDS) == 0
    lines = [json.loads(line) for line in up.output.splitlines()]
    assert {line["part"] for line in lines if "part" in line} == {"gateway"}
    assert any(line.get("text") == "Stopped." for line in lines)


def test_a_line_says_what_to_open_when_all_parts_are_ready(up: Up) -> None:
    ready = re.compile(r"^ready: open (http\S+/), .* \(all parts, after .* s\)$", re.MULTILINE)
    (line,) = wait_until(lambda: ready.findall(up.output))
    assert line == f"{up.urls()[0]}/"
    assert httpx2.get(line).status_code == 200


def test_it_is_said_once_when_every_part_is_ready() -> None:
    lines: list[tuple[str, str]] = []
    wanted = [Part("gateway", ()), Part("pipeline", ())]
    readiness = Readiness(settings.Settings(log_format="json"), wanted, lambda *line: lines.append(line))
    reports = [
        ("pipeline", "starting Spark on local[*] ..."),
        ("gateway", '{"text":"ready: open http://127.0.0.1:1/"}'),
        ("gateway", "ready: open http://127.0.0.1:1/"),  # after a restart
    ]
    with redirect_stderr(StringIO()) as errors:
        for report in reports:
            readiness(*report)
        assert errors.getvalue() == ""
        readiness("pipeline", "ready: the pipeline loads each file as soon as it is complete")
        readiness("pipeline", "ready: again")
    assert lines[:3] == reports
    (line,) = errors.getvalue().splitlines()
    assert json.loads(line)["text"].startswith("ready: open http://127.0.0.1:1/ (all parts, after ")
    assert ALL_READY.search(line)


def headwater(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )


def test_a_script_goes_on_when_it_is_ready_and_stops_it_by_a_command(tmp_path: Path) -> None:
    (tmp_path / "headwater.yml").write_text("gateway: {port: 0}", encoding="utf-8")
    started = headwater(tmp_path, "up", "--wait")
    assert started.returncode == 0, started.stderr
    (url,) = re.findall(r"^ready: open (http\S+)/,", started.stderr, re.M)
    assert post(url) == 200
    for arguments in (["up"], ["up", "--wait"]):
        second = headwater(tmp_path, *arguments)
        assert second.returncode == 1
        assert "is in use by process" in second.stderr
    stopped = headwater(tmp_path, "down")
    assert stopped.returncode == 0, stopped.stderr
    with pytest.raises(httpx2.ConnectError):
        post(url)
    again = headwater(tmp_path, "down")
    assert again.returncode == 1
    assert "No `headwater up` runs" in again.stderr
    assert "Stopped." in (tmp_path / "headwater-data" / "up.log").read_text(encoding="utf-8")


def python(name: str, code: str, stop_seconds: float = 30.0) -> Part:
    return Part(name, (sys.executable, "-c", code), stop_seconds)


def run(
    *wanted: Part, stop_when: Callable[[list[tuple[str, str]]], bool]
) -> tuple[int, list[tuple[str, str]]]:
    """The exit code and the lines of a supervisor that is stopped when the lines fulfil `stop_when`."""
    lines: list[tuple[str, str]] = []

    async def main() -> int:
        def report(name: str, line: str) -> None:
            lines.append((name, line))
            if stop_when(lines):
                supervisor.stop()

        supervisor = Supervisor(wanted, report)
        return await asyncio.wait_for(supervisor.run(), DEADLINE_SECONDS)

    return asyncio.run(main()), lines


WAITS = """
import signal, sys, time
def stop(number, frame):
    print("stopped", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(600)
"""


def test_parts_stop_in_their_order_when_it_is_asked_to(tmp_path: Path) -> None:
    code, lines = run(
        python("first", WAITS),
        python("second", WAITS),
        stop_when=lambda lines: {("first", "ready"), ("second", "ready")} <= set(lines),
    )
    assert code == 0
    assert [name for name, line in lines if line == "stopped"] == ["first", "second"]


def test_all_stop_with_code_2_when_a_part_is_misconfigured() -> None:
    code, lines = run(
        python("good", WAITS),
        python("bad", "print('unknown key'); raise SystemExit(2)"),
        stop_when=lambda lines: False,
    )
    assert code == MISCONFIGURED
    assert ("bad", "unknown key") in lines


def test_a_part_is_killed_and_the_code_is_1_when_it_does_not_stop() -> None:
    stubborn = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    )
    code, _ = run(python("stubborn", stubborn, 0.2), stop_when=lambda lines: ("stubborn", "ready") in lines)
    assert code == FAILED


@pytest.mark.parametrize("starts", [1, 2])
def test_it_stops_when_it_is_stopped_while_a_part_is_being_started(
    monkeypatch: pytest.MonkeyPatch, starts: int
) -> None:
    monkeypatch.setattr("headwater.cli.up.FIRST_PAUSE_SECONDS", 0.01)
    spawn = asyncio.create_subprocess_exec
    processes: list[asyncio.subprocess.Process] = []

    async def main() -> int:
        async def slow_spawn(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
            if len(processes) == starts - 1:
                supervisor.stop()
                await asyncio.sleep(0.2)  # `run` looks for the process meanwhile
                arguments = (sys.executable, "-c", WAITS)
            processes.append(await spawn(*arguments, **options))
            return processes[-1]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", slow_spawn)
        supervisor = Supervisor([python("dies", "raise SystemExit(1)")], lambda name, line: None)
        return await asyncio.wait_for(supervisor.run(), 30)

    assert asyncio.run(main()) == 0
    assert len(processes) == starts
    assert all(process.returncode is not None for process in processes)


SIGNALLED_TWICE = """
import os, signal, time
from headwater.cli.server.signals import Signals
def killed():
    raise ProcessLookupError("a part has ended meanwhile")
Signals(lambda: None, "in order", exit_now=killed)
os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""


def test_a_second_signal_exits_when_killing_the_parts_fails() -> None:
    done = subprocess.run([sys.executable, "-c", SIGNALLED_TWICE], timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 128 + signal.SIGINT


def test_a_second_signal_kills_the_parts_when_they_do_not_stop(up: Up) -> None:
    wait_until(up.urls)
    gateway = up.pid_of("serve")
    os.kill(gateway, signal.SIGSTOP)  # it cannot stop in order
    up.process.send_signal(signal.SIGINT)
    wait_until(lambda: "Stopping on SIGINT" in up.output)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(DEADLINE_SECONDS) == 128 + signal.SIGINT
    wait_until(lambda: not Path(f"/proc/{gateway}").exists())


def test_it_goes_on_when_signals_come_that_are_not_for_stopping(up: Up) -> None:
    [url] = wait_until(up.urls)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGHUP):
        up.process.send_signal(number)
    wait_until(lambda: "The settings were reloaded: nothing has changed" in up.output)
    wait_until(lambda: "Thread MainThread: " in up.output)
    assert "SIGUSR1 changes nothing" in up.output
    assert "SIGUSR2 changes nothing" in up.output
    assert post(url) == 200
    up.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "Stopping on SIGTERM" in up.output)
    up.process.send_signal(signal.SIGTERM)  # as some supervisors do
    assert up.process.wait(DEADLINE_SECONDS) == 0


def test_a_part_is_tried_again_when_it_cannot_be_started(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> int:
        supervisor = Supervisor([Part("nowhere", ("/nowhere/at/all",))], lambda name, line: None)
        asyncio.get_running_loop().call_later(0.1, supervisor.stop)
        return await supervisor.run()

    assert asyncio.run(main()) == 0
    assert "nowhere cannot be started" in caplog.text
    assert "it restarts in 1 s" in caplog.text


def test_long_and_broken_lines_are_passed_on_when_a_part_prints_them() -> None:
    code = r"""
import sys, time
sys.stdout.buffer.write(b"x" * (3 << 20) + b"\n\xff\nend\n")
sys.stdout.flush()
time.sleep(600)
"""
    _, lines = run(python("loud", code), stop_when=lambda lines: ("loud", "end") in lines)
    texts = [line for _, line in lines]
    assert texts[-2:] == ["\ufffd", "end"]
    assert any("too long" in text for text in texts)


def test_the_pipeline_is_a_part_when_there_are_destinations(tmp_path: Path) -> None:
    config = tmp_path / "headwater.yml"
    config.write_text(json.dumps({"destinations": [{"id": "dwh", "type": "duckdb", "path": "x.duckdb"}]}))
    found = {part.name: part.arguments for part in parts(settings.load(str(config)), str(config))}
    assert list(found) == ["gateway", "pipeline"]
    assert found["pipeline"][3:] == ("-c", str(config), "pipeline", "run", "--lineage", "--follow")
    every = {part.name: part.arguments for part in parts(settings.load(str(config)), every=30.0)}
    assert every["pipeline"][-2:] == ("--every", "30s")
    assert [part.name for part in parts(settings.Settings())] == ["gateway"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, "--lineage"),
        ({"graph": {"enabled": False}}, "--no-lineage"),
        ({"pipeline": {"lineage": {"enabled": False}}}, "--no-lineage"),
        ({"graph": {"enabled": False}, "pipeline": {"lineage": {"enabled": True}}}, "--lineage"),
    ],
)
def test_the_pipeline_sends_lineage_when_the_graph_or_the_settings_ask_for_it(
    tmp_path: Path, chosen: dict[str, object], expected: str
) -> None:
    config = tmp_path / "headwater.yml"
    config.write_text(json.dumps({"destinations": [{"id": "dwh", "type": "duckdb", "path": "x"}]} | chosen))
    (pipeline,) = (each for each in parts(settings.load(str(config))) if each.name == "pipeline")
    assert expected in pipeline.arguments


def test_streams_are_a_part_of_their_own_when_a_destination_is_in_stream_mode(tmp_path: Path) -> None:
    config = tmp_path / "headwater.yml"
    destination = {"id": "dwh", "type": "duckdb", "path": "x.duckdb", "primary_key": ["id"]}
    for mode, names in (("stream", ["gateway", "stream"]), ("both", ["gateway", "stream", "pipeline"])):
        config.write_text(json.dumps({"destinations": [destination | {"mode": mode}]}))
        found = {part.name: part.arguments for part in parts(settings.load(str(config)), str(config))}
        assert list(found) == names
        assert found["stream"][3:] == ("-c", str(config), "pipeline", "stream", "--lineage")
