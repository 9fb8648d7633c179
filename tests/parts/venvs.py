"""Programs of others in environments of their own, made once and kept in the cache.

They and we want different versions of the same packages.
"""

from __future__ import annotations

import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

from tests.parts.cache import Missing, folder, locked

__all__ = ["python_with"]

MAKING_SECONDS = 600


def python_with(name: str, *requirements: str) -> Path:
    """The interpreter of an environment that has these packages; Missing where they cannot be had."""
    # workers of pytest-xdist are processes: two that made one environment would remove each other's files
    with locked(name):
        return _made(name, requirements)


def _made(name: str, requirements: tuple[str, ...]) -> Path:
    version = blake2b("\n".join(requirements).encode(), digest_size=4).hexdigest()
    place = folder() / f"{name}-{version}-py{sys.version_info[0]}{sys.version_info[1]}"
    python, done = place / "bin" / "python", place / ".done"
    if done.exists():
        return python
    steps = [
        [sys.executable, "-m", "venv", "--clear", str(place)],
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements],
    ]
    for step in steps:
        try:
            made = subprocess.run(step, capture_output=True, text=True, check=False, timeout=MAKING_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Missing(f"{name} cannot be installed here within {MAKING_SECONDS} seconds") from error
        if made.returncode:
            raise Missing(f"{name} cannot be installed here: {made.stderr.strip()[-300:]}")
    done.touch()
    return python
