"""Runs all tests as three processes side by side: lineage, pipeline, and the rest.

One after the other they would leave a core idle most of the time: servers are waited for, JVMs start. Each
of the first two has one Spark session for all its tests. Only the rest is measured for coverage: log/ and
delivery/, which must have it, are tested there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The soak and the demo are long waits for processes of their own; where they are, the three end together.
SPARK = {
    "lineage": ["tests/lineage", "tests/test_soak.py"],
    "pipeline": ["tests/pipeline", "tests/destinations", "tests/cli/test_demo.py"],
}
COVERAGE = ["--cov", "--cov-report="]
KEPT_LINES = 200
MOST_TOLD = 20
WIDTH = 300


def shards() -> dict[str, list[str]]:
    """What each process is given; whatever is not Spark's is in the rest, so that no test is left out."""
    taken = [name for names in SPARK.values() for name in names]
    rest = sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").iterdir()
        if (path.is_dir() and path.name not in ("cases", "__pycache__")) or path.name.startswith("test_")
    )
    left_out = [f"--ignore={name}" for name in taken]
    return SPARK | {"rest": [*(name for name in rest if name not in taken), *left_out, *COVERAGE]}


def run(
    name: str, arguments: list[str], folder: str, codes: dict[str, int], endings: dict[str, deque[str]]
) -> None:
    """One process; its lines with its name in front, and the last of them kept for the end.

    It has a folder of its own: of the one that all of pytest shares, the first to end removes what others
    are just looking through, and those fail.
    """
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "--durations=15", f"--basetemp={folder}/{name}"]
    command += arguments
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    kept = endings[name] = deque[str](maxlen=KEPT_LINES)
    for line in process.stdout:
        print(f"{name:8} | {line}", end="", flush=True)
        kept.append(line.rstrip())
    codes[name] = process.wait()
    print(f"{name:8} | exit code {codes[name]} after {time.monotonic() - began:.0f} s", flush=True)


def repeat_failures(codes: dict[str, int], endings: dict[str, deque[str]]) -> None:
    """What failed, once more and last: where only the end of a log is kept, that is what its reader needs."""
    for name in sorted(name for name, code in codes.items() if code):
        print(f"\n{name}: exit code {codes[name]}")
        told = [line for line in endings[name] if line.startswith(("FAILED", "ERROR"))]
        print("\n".join(line[:WIDTH] for line in told[:MOST_TOLD] or list(endings[name])[-5:]), flush=True)


def main() -> int:
    """0 if every process says so."""
    codes: dict[str, int] = {}
    endings: dict[str, deque[str]] = {}
    with tempfile.TemporaryDirectory(prefix="headwater-tests-", ignore_cleanup_errors=True) as folder:
        threads = [
            threading.Thread(target=run, args=(*shard, folder, codes, endings)) for shard in shards().items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    repeat_failures(codes, endings)
    return max(codes.values()) if len(codes) == len(threads) else 1


if __name__ == "__main__":
    raise SystemExit(main())
