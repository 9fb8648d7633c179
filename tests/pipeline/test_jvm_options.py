"""The options of the JVM that a session of the pipeline starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.pipeline.spark.java_runtime import COMPILATION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_second_compiler_waits_longer_when_a_session_starts(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    runtime = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    options = list(runtime.getInputArguments())[::-1]
    assert {*COMPILATION.split()} <= {*options}
    # what the user sets stands behind it, and so takes precedence
    assert options.index("-XX:TieredStopAtLevel=1") < options.index(COMPILATION.split()[-1])
