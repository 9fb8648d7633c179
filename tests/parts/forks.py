"""Processes that are killed at crash points, forked from one that has already imported what they need.

Most of such a process's time would be imports. The parent has no threads and has opened nothing, so a fork of
it is as good as a process of its own: it dies by a real SIGKILL and leaves on disk what it left.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.system import crash_points as faults

__all__ = ["Forks"]


class Forks:
    """Runs `main` of a module in a process of its own, any number of times."""

    def __init__(self, module: str) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", __name__, module],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, crash_point: str = "") -> int:
        """The exit code, negative for a signal; `crash_point` as HEADWATER_CRASH_POINT has it."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        print(json.dumps([crash_point, arguments]), file=self._parent.stdin, flush=True)
        return int(self._parent.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parent.kill()
        self._parent.communicate()


def serve(module: str) -> None:
    main = importlib.import_module(module).main
    for line in sys.stdin:
        crash_point, arguments = json.loads(line)
        if (child := os.fork()) == 0:
            _live(main, crash_point, arguments)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _live(main: object, crash_point: str, arguments: list[str]) -> None:
    code = 1
    try:
        os.environ["HEADWATER_CRASH_POINT"] = crash_point
        importlib.reload(faults)  # it reads the environment once, at import
        assert callable(main)
        main(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
