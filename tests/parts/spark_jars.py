"""Jars that people add to Spark, for tests of lineage: Kafka's connector, Iceberg, Delta.

No later Spark has builds of all three.
"""

from __future__ import annotations

from pathlib import Path

from tests.parts import maven

__all__ = ["SPARK_VERSION", "find_spark_jars"]

SPARK_VERSION = "4.0.1"
# With what they need and Spark lacks. Named one by one: their own descriptions lead to other registries.
_ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    "io.delta:delta-spark_2.13:4.0.0",
    "io.delta:delta-storage:4.0.0",
)


def find_spark_jars() -> list[Path]:
    """The jars with what they need at run time; raises Missing where they cannot be fetched."""
    return sorted(maven.jars(f"spark-jars-{SPARK_VERSION}", *_ARTIFACTS).glob("*.jar"))
