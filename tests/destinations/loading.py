"""A process of its own that loads one staged file, for tests that kill it.

`python -m tests.destinations.loading TYPE OPTIONS FILE ROWS`; HEADWATER_CRASH_POINT says where it dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from headwater.destinations.base import Destination, Load, Loaded, load_destination
from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, table_of
from headwater.settings import DestinationSettings

__all__ = ["TABLE", "load_in_process", "load_now"]

ROOT = Path(__file__).parents[2]
TABLE = table_of("t", [Column("v", Kind.INT64)])


def load_now(type: str, options: dict[str, Any], file: str, rows: int, id: str = "killed") -> Loaded:
    if type == "redshift":  # on its stand-in, which the product's own class knows nothing of
        from tests.destinations.redshift_stand_in import on_postgres

        destination: Destination = on_postgres(options)
    else:
        destination = load_destination(DestinationSettings(id="dwh", type=type, options=options))
    destination.connect()
    try:
        table = destination.patch(TABLE)
        return destination.load(Load(id=id, table=table, files=[file], rows=rows))
    finally:
        destination.close()


def load_in_process(type: str, options: dict[str, Any], file: str, rows: int, crash_point: str = "") -> int:
    """The exit code; -SIGKILL if it died where it should."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.destinations.loading", type, json.dumps(options), file, str(rows)],
        cwd=ROOT,
        env={**os.environ, "HEADWATER_CRASH_POINT": crash_point},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


if __name__ == "__main__":
    kind, options, file, rows = sys.argv[1:]
    load_now(kind, json.loads(options), file, int(rows))
