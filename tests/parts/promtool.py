"""Prometheus' own checker of rules, from PATH or from Debian's package."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.parts.cache import Missing, once

SECONDS = 300


def find_promtool() -> Path:
    """The program; Missing if there is none and it cannot be fetched."""
    if (found := shutil.which("promtool")) is not None:
        return Path(found)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing("promtool is not on PATH; install Debian's package prometheus or another")
    return once("promtool", _fetch) / "usr" / "bin" / "promtool"


def _fetch(folder: Path) -> None:
    try:
        _run(["apt-get", "download", "-qq", "prometheus"], folder)
        [package] = folder.glob("prometheus_*.deb")
        _run(["dpkg-deb", "-x", str(package), str(folder)], folder)
        package.unlink()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Missing(f"Debian's package prometheus cannot be fetched: {error}") from error


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=SECONDS)
