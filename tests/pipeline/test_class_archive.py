"""An archive of Spark's classes: who uses it, and that a JVM maps its classes from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.pipeline.spark.class_archive import archive_path, with_archive
from headwater.pipeline.spark.java_runtime import find_java

OPTIONS = "spark.driver.extraJavaOptions"
START = """
import sys
from pathlib import Path
from headwater.pipeline.spark.session import start
from headwater.settings import PipelineSettings
more = {"spark.driver.extraJavaOptions": f"-XX:+UseParallelGC -Xlog:class+load:file={sys.argv[1]}"}
start(PipelineSettings(master="local[1]", memory="1g"), log_file=Path(sys.argv[2]), more=more).stop()
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the archive, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = archive_path(find_java())
    path.parent.mkdir(mode=0o700)
    return path


def test_a_session_uses_the_archive_when_there_is_one(archive: Path) -> None:
    conf = {OPTIONS: "-XX:+UseSerialGC"}
    assert with_archive(conf, find_java()) == conf
    archive.write_bytes(b"classes")
    archive.chmod(0o444)
    assert f"-XX:+UseSerialGC -XX:SharedArchiveFile={archive} " in with_archive(conf, find_java())[OPTIONS]


def test_no_archive_is_used_when_others_could_have_written_it(archive: Path) -> None:
    archive.write_bytes(b"classes")
    archive.chmod(0o664)
    assert with_archive({}, find_java()) == {}


@pytest.mark.parametrize("options", ["-Xshare:off", "-XX:SharedArchiveFile=own.jsa"])
def test_options_stay_when_they_share_classes_otherwise(archive: Path, options: str) -> None:
    archive.write_bytes(b"classes")
    archive.chmod(0o444)
    assert with_archive({OPTIONS: options}, find_java()) == {OPTIONS: options}


@pytest.mark.long
def test_a_jvm_maps_its_classes_when_the_archive_was_made(archive: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater.pipeline.spark.class_archive"]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    assert made.stdout == f"{archive}\n"
    assert sorted(each.suffix for each in archive.parent.iterdir()) == [".jsa", ".lock"]
    log, spark_log = tmp_path / "classes.log", tmp_path / "spark.log"
    subprocess.run([sys.executable, "-c", START, log, spark_log], check=True, env={**os.environ})
    sources = log.read_text().splitlines()
    mapped = sum("source: shared objects file" in line for line in sources)
    assert mapped > 0.7 * len(sources)
