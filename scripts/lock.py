"""Writes constraints.txt: the exact version of every package, for all supported versions of Python.

`make` and CI install these versions. The file names no index, so each machine takes them from its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = "# Exact versions of all packages, for `pip install --constraint`. Written by `make lock`.\n"


def main() -> int:
    """Resolve all extras together, and write the versions."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--upgrade"]
    command += ["--all-extras", "--no-header", "--no-annotate", "pyproject.toml"]
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        return done.returncode
    lines = [line for line in done.stdout.splitlines() if "==" in line]
    (ROOT / "constraints.txt").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"lock: constraints.txt has {len(lines)} versions; run `make test` before you commit it.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
