"""The process that writes the graph: `headwater serve` starts it and sends it batches of events."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from headwater.cli.server.process import configure_logging, keep_files_private
from headwater.settings import Settings

PR_SET_PDEATHSIG = 1


def command(settings: Settings) -> tuple[str, ...]:
    """The command line of the process, which logs as the server does."""
    return (sys.executable, "-m", __name__, settings.log_format, settings.log_level)


def main() -> None:
    log_format, log_level = sys.argv[1:]
    configure_logging(Settings(log_format=log_format, log_level=log_level))  # type: ignore[arg-type]
    keep_files_private()
    if sys.platform == "linux":
        # If the server is killed with SIGKILL, its process must not keep the lock of the graph.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing but answers goes to the server

    from headwater.graph.ingest.process import read_start, serve_batches

    start = read_start(requests)
    if start is not None:
        serve_batches(start, requests, answers)


if __name__ == "__main__":
    main()
