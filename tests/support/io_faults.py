"""Lets each call in turn that changes a file fail, and looks for every acknowledged event after a restart.

    LD_PRELOAD=<library> python -m tests.support.io_faults <module> <scenario> [--stride n]

The faults are in the C library (io_faults.c), below Python and SQLite alike. For each fault a child process
works in a folder of its own, and another child then restarts without faults and counts.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import faulthandler
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import apsw

from headwater.errors import HeadwaterError

SOURCE = Path(__file__).with_suffix(".c")
RUN_SECONDS = 60
FAIL, SHORT_WRITE, KILL = range(3)
ONCE, FROM_THEN_ON, UNTIL_REMOVAL = range(3)
EXPECTED = (HeadwaterError, OSError, apsw.Error)
"""The errors that a scenario may end with when the disk fails."""


class Fault(NamedTuple):
    """What happens to the n-th call, and whether it happens to later ones too."""

    action: int
    error: int = 0
    lasts: int = ONCE


FAULTS = {
    "io error": Fault(FAIL, errno.EIO),
    "io errors from then on": Fault(FAIL, errno.EIO, FROM_THEN_ON),
    "disk full": Fault(FAIL, errno.ENOSPC),
    "disk full from then on": Fault(FAIL, errno.ENOSPC, FROM_THEN_ON),
    "disk full until a file is removed": Fault(FAIL, errno.ENOSPC, UNTIL_REMOVAL),
    "short write": Fault(SHORT_WRITE),
    "kill": Fault(KILL),
}

Record = Callable[[Any], None]


class Scenario(Protocol):
    """Work that survives faults, and the count afterwards."""

    def prepare(self, folder: Path) -> None:
        """Runs before the faults."""

    def work(self, folder: Path, record: Record) -> None:
        """Runs with a fault; records what was acknowledged. May raise an EXPECTED error."""

    def check(self, folder: Path, recorded: list[Any]) -> None:
        """Restarts without faults; AssertionError if a promise was broken."""


def compile_library(folder: Path) -> Path | None:
    """The library that fails calls; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    target = folder / "io_faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(SOURCE), "-ldl"], check=True)
    return target


def run(library: Path, module: str, scenario: str, stride: int) -> dict[str, Any]:
    """Runs a scenario with every `stride`-th fault, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.io_faults", module, scenario, "--stride", str(stride)],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


class _Library:
    """The functions of the preloaded library."""

    def __init__(self) -> None:
        found = ctypes.CDLL(None)
        self._arm = found.io_faults_arm
        self._arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int]
        self._disarm = found.io_faults_disarm
        self._disarm.restype = ctypes.c_long
        self._fault = found.io_faults_fault
        self._fault.restype = ctypes.c_char_p

    def arm(self, folder: Path, number: int, fault: Fault) -> None:
        self._arm(str(folder).encode(), number, fault.action, fault.error, fault.lasts)

    def disarm(self) -> tuple[int, str]:
        """The number of calls, and the one that failed."""
        return self._disarm(), self._fault().decode(errors="replace")


class _Child:
    """A forked process that sends lines of JSON to its parent."""

    def __init__(self, run: Callable[[Record], None]) -> None:
        reading, writing = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(writing)
            self._lines = os.fdopen(reading)
            return
        faulthandler.dump_traceback_later(RUN_SECONDS - 2)
        signal.alarm(RUN_SECONDS)
        code = 1
        try:
            os.close(reading)
            run(partial(_send, writing))
            code = 0
        except BaseException:
            with contextlib.suppress(BaseException):
                _send(writing, {"error": traceback.format_exc()[-3000:]})
        finally:
            os._exit(code)

    def wait(self) -> tuple[list[Any], int]:
        """What it sent, and its status."""
        with self._lines:
            lines = [json.loads(line) for line in self._lines if line.endswith("\n")]
        return lines, os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _send(pipe: int, value: Any) -> None:
    os.write(pipe, json.dumps(value).encode() + b"\n")


def _attempt(library: _Library, scenario: Scenario, root: Path, number: int, fault: Fault) -> dict[str, Any]:
    """One fault: the work, a restart, and the count. `call` is empty if the work has fewer calls."""
    folder = Path(tempfile.mkdtemp(dir=root))

    def work(send: Record) -> None:
        scenario.prepare(folder)
        library.arm(folder, number, fault)
        try:
            scenario.work(folder, lambda value: send({"recorded": value}))
        except EXPECTED as error:
            send({"raised": f"{type(error).__name__}: {error}"[:300]})
        calls, call = library.disarm()
        send({"calls": calls, "call": call})

    sent, code = _Child(work).wait()
    result: dict[str, Any] = {"calls": 0, "call": "kill" if code == -signal.SIGKILL else "", "problem": ""}
    recorded = [each["recorded"] for each in sent if "recorded" in each]
    for each in sent:
        result |= {key: value for key, value in each.items() if key in ("calls", "call")}
        if "error" in each:
            result["problem"] = each["error"]
    if code not in (0, -signal.SIGKILL) and not result["problem"]:
        result["problem"] = f"the work ended with {code}"
    checked, code = _Child(lambda _: scenario.check(folder, recorded)).wait()
    if code and not result["problem"]:
        result["problem"] = checked[0]["error"] if checked else f"the check ended with {code}"
    result["raised"] = [each["raised"] for each in sent if "raised" in each]
    shutil.rmtree(folder, ignore_errors=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("scenario")
    parser.add_argument("--stride", type=int, default=1, help="try every n-th call only")
    parser.add_argument("--fault", choices=FAULTS, help="only this fault")
    parser.add_argument("--at", type=int, help="only this call")
    options = parser.parse_args()
    scenario: Scenario = getattr(importlib.import_module(options.module), options.scenario)()
    library = _Library()
    memory = Path("/dev/shm")  # syncs cost nothing there
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="headwater-io-") as root:
        without = _attempt(library, scenario, Path(root), 0, Fault(FAIL))
        if without["problem"]:
            print(without["problem"])
            return 1
        total, tried, problems = without["calls"], 0, list[str]()
        for place, (name, fault) in enumerate(FAULTS.items()):
            if options.fault not in (None, name):
                continue
            number = options.at or 1 + place % options.stride
            while True:
                result = _attempt(library, scenario, Path(root), number, fault)
                if not result["call"] and not result["problem"]:
                    break
                tried += 1
                if result["problem"]:
                    problems.append(f"{name} at call {number} ({result['call']}): {result['problem']}")
                if options.at or number > 2 * total:
                    break
                number += options.stride
    print(json.dumps({"calls": total, "faults": tried, "problems": problems}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
