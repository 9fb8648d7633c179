"""Runs a script with lineage as Python runs it: `__main__`, argv, path, tracebacks, exit code."""

from __future__ import annotations

import builtins
import io
import os
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from headwater.lineage.process.exit_status import exit_status
from headwater.lineage.process.install import install


def run(script: str, arguments: list[str]) -> None:
    """Run a file as `python script arguments…` would; its exceptions and SystemExit pass through."""
    sys.argv = [script, *arguments]
    place = os.path.abspath(script)  # absolute, with links unresolved, as in Python
    try:
        with io.open_code(place) as file:
            source = file.read()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {place!r}: {reason}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    _hide_own_frames(place)
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(script).resolve().parent)
    main = _main(place)
    code = compile(source, place, "exec", dont_inherit=True)
    install()
    try:
        exec(code, main.__dict__)  # noqa: S102 - the user's own script
    except SystemExit as asked:
        exit_status.exited(asked.code)  # also if the script raises it without `sys.exit`
        raise


def run_module(name: str, arguments: list[str]) -> None:
    """Run a module as `python -m name arguments…` would."""
    import runpy

    _hide_own_frames(None)
    sys.argv = [name, *arguments]
    install()
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as asked:
        exit_status.exited(asked.code)
        raise


def _main(script: str) -> ModuleType:
    """A new `__main__`, in which pickle and multiprocessing find the script's definitions."""
    from importlib.machinery import SourceFileLoader

    main = ModuleType("__main__")
    main.__file__ = script
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    main.__loader__ = SourceFileLoader("__main__", script)
    main.__dict__["__cached__"] = None
    sys.modules["__main__"] = main
    return main


def _hide_own_frames(script: str | None) -> None:
    """Make tracebacks begin at the script's own frame."""
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        first = trace
        while first is not None and not _is_users(first, script):
            first = first.tb_next
        if first is not None or isinstance(error, SyntaxError):
            error.__traceback__ = trace = first
        return before(kind, error, trace)

    sys.excepthook = excepthook


def _is_users(trace: TracebackType, script: str | None) -> bool:
    name = trace.tb_frame.f_code.co_filename
    if script is not None:
        return name == script
    return (
        name != __file__ and not name.startswith("<frozen") and "headwater" + "/lineage/__main__" not in name
    )
