"""The cause of an error of Spark is in its first line, with the executor, and what to do."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from headwater.errors import SettingsError
from headwater.pipeline.load_report import reason_of
from headwater.pipeline.spark.cluster_packages import pack
from headwater.pipeline.spark.java_runtime import SparkUnavailable
from headwater.pipeline.spark.spark_errors import cause_of
from headwater.pipeline.spark.standalone_master import check_master
from headwater.settings import PipelineSettings, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_exception_of_a_python_worker_is_named_when_a_job_fails(spark: SparkSession) -> None:
    def fail(batches: Any) -> Any:
        for batch in batches:
            raise RuntimeError(f"no more of {batch.num_rows}")
        yield from ()

    with pytest.raises(Exception) as caught:
        spark.range(3).coalesce(1).mapInArrow(fail, "id bigint").collect()
    assert reason_of(caught.value) == "RuntimeError: no more of 3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": java.nio.file.NoSuchFileException: /x/packages.zip\n\tat sun.nio.fs.X(Y.java:1)\n",
            "java.nio.file.NoSuchFileException: /x/packages.zip",
            id="a call",
        ),
        pytest.param(
            "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost "
            "task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): java.io.IOException: Cannot run program "
            '"/opt/py": error=13, Permission denied\n\tat java.lang.X\nCaused by: java.io.IOException: '
            "error=13, Permission denied\n",
            'java.io.IOException: Cannot run program "/opt/py": error=13, Permission denied (Caused by: '
            "java.io.IOException: error=13, Permission denied) (executor 1 on 10.0.0.7). Set "
            "`pipeline.spark` `spark.pyspark.python` to a Python that each worker has",
            id="a program",
        ),
        pytest.param(
            "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost "
            "task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "
            "org.apache.spark.api.python.PythonException: "
            'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    x()\n'
            "ModuleNotFoundError: No module named 'headwater'\n\n\tat org.X\nDriver stacktrace:\n",
            "ModuleNotFoundError: No module named 'headwater' (executor 1 on 10.0.0.7). "
            "Executors lack headwater: leave `pipeline.ship_packages` on, or install "
            "'headwater[pipeline]' on each worker",
            id="a package",
        ),
        pytest.param("plain", "plain", id="plain"),
        pytest.param("", "", id="empty"),
    ],
)
def test_the_cause_is_found_when_a_text_has_stacks(text: str, expected: str) -> None:
    assert cause_of(text) == expected


def test_the_archive_is_kept_when_its_folder_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headwater.pipeline.spark.cluster_packages.NEEDED", ())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "packages-0123456789abcdef.zip").touch()
    for _ in range(2):
        made = pack(Path("data"))
        assert made.is_absolute()
        assert list((tmp_path / "data").glob("packages-*")) == [made]


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a page with the version of a master, as Spark's own master shows it."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            text = f'<span class="version me-3">{request.param}</span>'
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def master_at(port: int, page: int) -> PipelineSettings:
    return PipelineSettings(master=f"spark://127.0.0.1:{port}", spark={"spark.master.ui.port": page})


@pytest.mark.parametrize("page", ["3.5.6"], indirect=True)
def test_the_versions_are_named_when_the_master_runs_another_spark(page: int) -> None:
    with pytest.raises(
        SparkUnavailable, match=rf"runs Spark 3\.5\.6, and this pipeline {pyspark.__version__}"
    ):
        check_master(master_at(page, page))


@pytest.mark.parametrize("page", [pyspark.__version__], indirect=True)
def test_the_version_is_returned_when_the_master_runs_the_same_spark(page: int) -> None:
    assert check_master(master_at(page, page)) == pyspark.__version__


@pytest.mark.parametrize(
    "master",
    ["spark://127.0.0.1:{}", "spark://127.0.0.1:{0},127.0.0.1:{0}", "spark://no.such.host.invalid:7"],
)
def test_the_error_names_the_address_when_no_master_is_there(master: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SparkUnavailable, match="no master of Spark answers at") as caught:
        check_master(PipelineSettings(master=master.format(port)))
    assert "pipeline.master" in caught.value.hint


@pytest.mark.parametrize("master", ["spark://", "spark://host", "spark://host:port", "spark://:7077"])
def test_the_form_is_shown_when_an_address_cannot_be_read(master: str) -> None:
    with pytest.raises(SparkUnavailable) as caught:
        check_master(PipelineSettings(master=master))
    assert "spark://host:7077" in caught.value.hint


def test_masters_of_other_kinds_are_not_asked() -> None:
    assert [check_master(PipelineSettings(master=each)) for each in ("local[*]", "yarn")] == ["", ""]


@pytest.mark.parametrize("key", ["data_dir", "events.dir", "pipeline.staging_dir", "pipeline.lock.dir"])
def test_a_url_is_refused_and_not_shown_when_a_folder_is_expected(tmp_path: Path, key: str) -> None:
    *sections, name = key.split(".")
    text = ""
    for depth, section in enumerate(sections):
        text += f"{'  ' * depth}{section}:\n"
    text += f"{'  ' * len(sections)}{name}: s3://key:sesame@bucket/events\n"
    config = tmp_path / "headwater.yml"
    config.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=f"`{key}` is a folder of this machine") as caught:
        load(config)
    assert "sesame" not in str(caught.value)
