"""Jars that people add to Spark, for tests of lineage: Kafka's connector, Iceberg, Delta.

They come once from their published Maven artifacts by `mvn`, into the cache. Newer Sparks than this one have
no builds of all three.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.parts import cache
from tests.parts.cache import Missing

__all__ = ["SPARK_VERSION", "find_spark_jars"]

SPARK_VERSION = "4.0.1"
# With what they need and Spark has not. Named one by one: their own descriptions lead to other registries.
_ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.0"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
    ("org.apache.iceberg", "iceberg-spark-runtime-4.0_2.13", "1.10.0"),
    ("io.delta", "delta-spark_2.13", "4.0.0"),
    ("io.delta", "delta-storage", "4.0.0"),
)
_FETCH_SECONDS = 600
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headwater.tests</groupId>
  <artifactId>spark-jars</artifactId>
  <version>1</version>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId>
    <artifactId>maven-dependency-plugin</artifactId>
    <configuration><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""
_ITEM = """
      <artifactItem><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></artifactItem>"""


def find_spark_jars() -> list[Path]:
    """The jars with what they need at run time; raises Missing where they cannot be had."""
    folder = cache.once(f"spark-jars-{SPARK_VERSION}-1", _fetch)
    return sorted(folder.glob("*.jar"))


def _fetch(folder: Path) -> None:
    if (mvn := shutil.which("mvn")) is None:
        raise Missing("`mvn` (Maven), which fetches Spark's jars, is not on PATH")
    pom = folder / "pom.xml"
    items = "".join(_ITEM.format(*each) for each in _ARTIFACTS)
    pom.write_text(_POM.format(items=items), encoding="utf-8")
    command = [mvn, "-B", "-q", "-U", "-f", str(pom), "dependency:copy", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"mvn did not fetch Spark's jars within {_FETCH_SECONDS} s") from None
    if done.returncode != 0:
        told = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise Missing(f"mvn could not fetch Spark's jars: {told[0]}")
