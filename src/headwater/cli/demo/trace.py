"""The demo's report on the shop's tables, and the trace of its columns back to fields of the events."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from headwater.errors import HeadwaterError

__all__ = ["make_report", "trace_report"]

SCRIPT = Path(__file__).with_name("report_job.py")
COLUMNS = ("city", "revenue")
FOLD_SECONDS = 120.0


def make_report(url: str, folder: Path) -> Path:
    """Run the script as its author would, unchanged; where the report is."""
    report = folder / "report"
    done = _headwater(
        "lineage", "run", str(SCRIPT), str(folder / "warehouse.duckdb"), str(report),
        OPENLINEAGE_URL=url, OPENLINEAGE_NAMESPACE="shop",
    )  # fmt: skip
    if done.returncode:
        raise HeadwaterError(
            "The report of the demo was not made.", hint=f"It printed: {done.stderr[-2000:]}"
        )
    return report


def trace_report(config: Path, report: Path) -> list[str]:
    """Each column of the report, as a tree up to the JSON pointer in the file of events."""
    deadline = time.monotonic() + FOLD_SECONDS
    found: list[str] = []
    for column in COLUMNS:
        while True:
            arguments = ("lineage", "show", "-n", "file", str(report), "--column", column, "--up", "--direct")
            done = _headwater("-c", str(config), *arguments)
            # the events of the pipeline and those of the report come by ways of their own
            if done.returncode == 0 and "incoming" in done.stdout:
                found += ["", *done.stdout.splitlines()]
                break
            if time.monotonic() > deadline:
                raise HeadwaterError(
                    f"The graph of the demo does not know where {column} comes from.",
                    hint=f"It printed: {done.stdout[-2000:]}{done.stderr[-2000:]}",
                )
            time.sleep(0.5)
    return found


def _headwater(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
