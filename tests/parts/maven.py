"""Published Maven artifacts, fetched once by `mvn` and kept in the cache."""

from __future__ import annotations

import shutil
import subprocess
from hashlib import blake2b
from pathlib import Path

from tests.parts.cache import Missing, once

__all__ = ["jars", "jars_with_dependencies"]

FETCH_SECONDS = 600
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headwater.tests</groupId>
  <artifactId>parts</artifactId>
  <version>1</version>
  <dependencies>{dependencies}</dependencies>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId>
    <artifactId>maven-dependency-plugin</artifactId>
    <configuration><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""
_COORDINATES = "<groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"


def jars(name: str, *artifacts: str) -> Path:
    """A folder with these jars alone, each given as group:artifact:version; raises Missing."""
    return _fetched(name, artifacts, "dependency:copy", "-U")


def jars_with_dependencies(name: str, *artifacts: str) -> Path:
    """A folder with these jars and everything they need at run time; raises Missing."""
    return _fetched(name, artifacts, "dependency:copy-dependencies", "-DincludeScope=runtime")


def _fetched(name: str, artifacts: tuple[str, ...], goal: str, option: str) -> Path:
    digest = blake2b("\n".join((goal, *artifacts)).encode(), digest_size=4).hexdigest()

    def fetch(folder: Path) -> None:
        if (mvn := shutil.which("mvn")) is None:
            raise Missing(f"`mvn` (Maven), which fetches {name}, is not on PATH")
        each = [_COORDINATES.format(*artifact.split(":")) for artifact in artifacts]
        is_copy = goal == "dependency:copy"
        pom = _POM.format(
            dependencies="" if is_copy else "".join(f"<dependency>{one}</dependency>" for one in each),
            items="".join(f"<artifactItem>{one}</artifactItem>" for one in each) if is_copy else "",
        )
        (folder / "pom.xml").write_text(pom, encoding="utf-8")
        command = [
            mvn,
            "-B",
            "-q",
            "-f",
            str(folder / "pom.xml"),
            goal,
            option,
            f"-DoutputDirectory={folder}",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired:
            raise Missing(f"mvn did not fetch {name} within {FETCH_SECONDS} s") from None
        if done.returncode != 0:
            raise Missing(f"mvn could not fetch {name} (exit code {done.returncode})")

    return once(f"{name}-{digest}", fetch)
