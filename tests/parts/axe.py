"""axe-core, which finds what assistive technology cannot use: fetched once by `npm` into the cache."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.parts.cache import Missing, locked, once

__all__ = ["AXE_VERSION", "axe_source"]

AXE_VERSION = "4.14.1"
FETCH_SECONDS = 300


def axe_source() -> str:
    """The script of axe-core, fetched if it is not in the cache; raises Missing."""
    with locked("axe-core"):
        return (once(f"axe-core-{AXE_VERSION}", _fetch) / "axe.min.js").read_text(encoding="utf-8")


def _fetch(folder: Path) -> None:
    if (npm := shutil.which("npm")) is None:
        raise Missing("`npm`, which fetches axe-core, is not on PATH")
    command = [npm, "pack", f"axe-core@{AXE_VERSION}", "--silent"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=FETCH_SECONDS, check=False)
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        raise Missing(
            f"npm cannot fetch axe-core {AXE_VERSION}: {done.stderr.decode(errors='replace')[-300:]}"
        )
    with tarfile.open(archives[0]) as archive:
        script = archive.extractfile("package/axe.min.js")
        if script is None:
            raise Missing("axe-core has no package/axe.min.js")
        (folder / "axe.min.js").write_bytes(script.read())
