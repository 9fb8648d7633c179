"""Runs the demo's report on the shop's tables, and traces its columns to the fields of the events."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from headwater.errors import HeadwaterError

SCRIPT = Path(__file__).with_name("report_job.py")
COLUMNS = ("city", "revenue")
FOLD_SECONDS = 120.0


def make_report(url: str, folder: Path, table: str) -> Path:
    """Run the script on a table as its author would; return the report's folder."""
    report = folder / "report"
    done = _headwater(
        "lineage", "run", str(SCRIPT), str(folder / "warehouse.duckdb"), table, str(report),
        OPENLINEAGE_URL=url, OPENLINEAGE_NAMESPACE="shop",
    )  # fmt: skip
    if done.returncode:
        raise HeadwaterError("The report of the demo failed.", hint=f"Its output: {done.stderr[-2000:]}")
    return report


def trace_report(config: Path, report: Path) -> list[str]:
    """Trace each column of the report, as a tree, to the JSON pointer in the event file."""
    deadline = time.monotonic() + FOLD_SECONDS
    found: list[str] = []
    for column in COLUMNS:
        while True:
            arguments = ("lineage", "show", "-n", "file", str(report), "--column", column, "--up", "--direct")
            done = _headwater("-c", str(config), *arguments)
            # Lineage of the pipeline and of the report arrive independently.
            if done.returncode == 0 and "incoming" in done.stdout:
                found += ["", *done.stdout.splitlines()]
                break
            if time.monotonic() > deadline:
                raise HeadwaterError(
                    f"The graph of the demo has no origin of {column}.",
                    hint=f"Its output: {done.stdout[-2000:]}{done.stderr[-2000:]}",
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
