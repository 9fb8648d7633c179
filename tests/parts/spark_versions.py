"""Other releases of Spark, each in an environment of its own in the cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.parts.cache import Missing, once
from tests.sources import ROOT

__all__ = ["VERSIONS", "python_of"]

VERSIONS = ("3.5.6", "4.0.1", "4.1.1", "4.2.1")
_PACKAGES = ["openlineage-python", "msgspec", "orjson", "pyyaml", "setuptools<80"]
_INSTALL_SECONDS = 900


def python_of(version: str) -> Path:
    """The Python that has this PySpark (400 MB, kept in the cache); raises Missing."""

    def fill(place: Path) -> None:
        # it is moved afterwards, and works there when its Python is called by its path
        run(sys.executable, "-m", "venv", "--without-pip", str(place))
        run(
            sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet",
            "--disable-pip-version-check", f"pyspark=={version}", *_PACKAGES,
        )  # fmt: skip

    def run(*command: str) -> None:
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            raise Missing(f"pyspark {version} cannot be installed: {str(said).strip()[-200:]}") from error

    name = f"pyspark-{version}-py{sys.version_info.major}{sys.version_info.minor}"
    return once(name, fill) / "bin" / "python"


SOURCE = ROOT / "src"
