"""Fetches what the long tests need and pip does not bring: jars, other releases of Spark, a browser, Redis.

Everything is kept in the cache of tests/parts/cache.py, except for the browser and Redis, which are installed
by apt where this user may. A part that cannot be fetched is named; its tests then skip, or fail with
`--require-parts`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.parts import (  # noqa: E402
    iceberg_rest,
    kafka_broker,
    lineage_interfaces,
    promtool,
    spark_jars,
    spark_versions,
)
from tests.parts.cache import Missing  # noqa: E402

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
REDIS = ("redis-server", "valkey-server")
APT_SECONDS = 600


def install(package: str, programs: tuple[str, ...]) -> None:
    """Install Debian's package unless one of its programs is there."""
    if any(shutil.which(name) for name in programs):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Missing(
            f"{' or '.join(programs)} is not on PATH; install Debian's package {package} or another"
        )
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", package]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=APT_SECONDS)
        if done.returncode:
            raise Missing(f"{' '.join(command)} failed: {done.stderr.strip()[-200:]}")


def parts() -> dict[str, Callable[[], object]]:
    """The parts by the name that is printed."""
    found: dict[str, Callable[[], object]] = {
        "Chromium": lambda: install("chromium", CHROMIUM),
        "Redis": lambda: install("redis-server", REDIS),
        "systemd-analyze": lambda: install("systemd", ("systemd-analyze",)),
        "promtool": promtool.find_promtool,
        "Kafka": kafka_broker.find_jars,
        "Spark's connectors": spark_jars.find_spark_jars,
        "Iceberg's REST catalog": iceberg_rest.find_server,
        "OpenLineage's interfaces": lineage_interfaces.find_interfaces,
    }
    for version in spark_versions.VERSIONS:
        found[f"Spark {version}"] = lambda version=version: spark_versions.python_of(version)  # type: ignore[misc]
    return found


def main() -> int:
    """Fetch every part, and say which cannot be had."""
    for name, fetch in parts().items():
        began = time.monotonic()
        try:
            fetch()
        except (Missing, OSError, subprocess.SubprocessError) as error:
            print(f"parts: {name}: missing: {error}", flush=True)
        else:
            print(f"parts: {name}: ready ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
