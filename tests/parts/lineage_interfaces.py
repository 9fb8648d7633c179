"""The published interfaces of OpenLineage for nodes of JVM extensions; by `mvn`, into the cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.parts import cache
from tests.parts.cache import Missing

__all__ = ["find_interfaces"]

_NAME = "spark-extension-interfaces"
_VERSION = "1.20.5"
_FETCH_SECONDS = 120


def find_interfaces() -> Path:
    """The jar, with the client that it brings along; raises Missing where it cannot be had."""
    return cache.once(f"{_NAME}-{_VERSION}", _fetch) / f"{_NAME}-{_VERSION}.jar"


def _fetch(folder: Path) -> None:
    if (mvn := shutil.which("mvn")) is None:
        raise Missing("`mvn` (Maven), which fetches OpenLineage's interfaces, is not on PATH")
    command = [mvn, "-B", "-q", "dependency:copy", f"-DoutputDirectory={folder}"]
    command += [f"-Dartifact=io.openlineage:{_NAME}:{_VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"mvn did not fetch {_NAME} within {_FETCH_SECONDS} s") from None
    if done.returncode != 0 or not (folder / f"{_NAME}-{_VERSION}.jar").exists():
        told = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise Missing(f"mvn could not fetch {_NAME}: {told[0]}")
