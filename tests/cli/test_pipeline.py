"""`headwater pipeline`: when `run --follow` starts cycles (no Spark, no load); the gateway's address."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import pipeline as run_module
from headwater.cli.pipeline import _Cycles, gateway_url
from headwater.log.files.layout import EventFolder, unprocessed
from headwater.settings import EventsSettings, GatewaySettings, Settings, TlsSettings
from tests.support.waiting import wait_until


class Following:
    """Follows a folder of event files on a thread; `loads` has the files of each cycle that loaded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, archives: bool) -> None:
        self.incoming = folder / "incoming"
        EventFolder(folder).make()
        self.loads: list[list[str]] = []
        self.is_warm = threading.Event()
        self.complete_during_a_load: list[int] = []
        self._archives = archives
        monkeypatch.setattr(run_module, "Signals", lambda stop, order, **limits: None)
        monkeypatch.setattr(run_module, "POLL_SECONDS", 0.01)
        self._cycles = _Cycles(Settings(events=EventsSettings(dir=str(folder))), as_json=False)
        monkeypatch.setattr(self._cycles, "_session", self.is_warm.set)
        monkeypatch.setattr(self._cycles, "_load", self._load)
        self._thread = threading.Thread(target=self._cycles.follow)
        self._thread.start()

    def complete(self, number: int) -> None:
        name = f"incoming.tok=web-2026-01-01T00-00-0{number}.000.log"
        (self.incoming / name).write_text("{}\n")

    def _load(self) -> Any:
        files = unprocessed(self.incoming.parent)
        if self.complete_during_a_load:
            self.complete(self.complete_during_a_load.pop())
        self.loads.append([file.path.name[-10:-8] for file in files])
        self._cycles._loaded = True
        if self._archives:
            for file in files:
                file.path.unlink()
        return None

    def stop(self) -> None:
        self._cycles._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_a_file_is_loaded_at_once_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "GATHER_SECONDS", 0.0)
    following = Following(tmp_path, monkeypatch, archives=True)
    assert following.is_warm.wait(30)  # Spark starts before there is a file
    for number in (1, 2):
        following.complete(number)
        wait_until(lambda number=number: len(following.loads) == number, "the load")  # type: ignore[misc]
    following.stop()
    assert following.loads == [["01"], ["02"]]


def test_a_file_waits_for_no_retry_when_it_becomes_complete_during_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(run_module, "RETRY_SECONDS", 3600.0)
    following = Following(tmp_path, monkeypatch, archives=True)
    following.complete_during_a_load.append(2)
    following.complete(1)
    wait_until(lambda: len(following.loads) == 2, "the second load")
    following.stop()
    assert following.loads == [["01"], ["02"]]


def test_files_share_a_cycle_when_they_are_complete_soon_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "GATHER_SECONDS", 1.0)
    following = Following(tmp_path, monkeypatch, archives=True)
    following.complete(1)
    wait_until(lambda: len(following.loads) == 1, "the first load")
    following.complete(2)
    following.complete(3)
    wait_until(lambda: len(following.loads) == 2, "the second load")
    following.stop()
    assert following.loads == [["01"], ["02", "03"]]


def test_a_file_that_could_not_be_loaded_waits_for_the_retry_when_no_other_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(run_module, "RETRY_SECONDS", 0.5)
    following = Following(tmp_path, monkeypatch, archives=False)
    following.complete(1)
    wait_until(lambda: len(following.loads) == 3, "the retries")
    following.stop()
    assert set(map(tuple, following.loads)) == {("01",)}


@pytest.mark.parametrize(
    ("gateway", "expected"),
    [
        (GatewaySettings(), "http://127.0.0.1:8750"),
        (GatewaySettings(host="0.0.0.0", port=80), "http://127.0.0.1:80"),
        (GatewaySettings(host="::"), "http://[::1]:8750"),
        (GatewaySettings(host="fd00::7"), "http://[fd00::7]:8750"),
        (GatewaySettings(host="gate.example"), "http://gate.example:8750"),
        # the port is chosen at the start; the name in the certificate is unknown
        (GatewaySettings(port=0), ""),
        (GatewaySettings(tls=TlsSettings(certificate="c.pem", key="k.pem")), ""),
    ],
)
def test_the_gateway_is_found_from_the_same_machine_when_it_listens_anywhere(
    gateway: GatewaySettings, expected: str
) -> None:
    assert gateway_url(gateway) == expected
