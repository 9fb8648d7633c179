"""A driver on a standalone cluster sends the lineage of its Spark Connect clients, which send none."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lineage.conftest import validate
from tests.parts.spark_cluster import SparkCluster
from tests.sources import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SECONDS = 400
# `pyspark[connect]`; without it the driver is tested alone
MISSING = [
    name for name in ("grpc", "grpc_status", "pandas", "zstandard") if not importlib.util.find_spec(name)
]

CLIENT = """
import sys, warnings
import headwater.lineage
from headwater.lineage.process.install import LineageUnavailable
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    headwater.lineage.install(spark)
spark.read.parquet(sys.argv[2] + "/own").createOrReplaceTempView("doubled")
spark.sql("SELECT sum(twice) AS total FROM doubled WHERE id > 9").write.parquet(sys.argv[2] + "/total")
print(spark.read.parquet(sys.argv[2] + "/total").collect()[0]["total"])
print([str(each.message) for each in caught if each.category is LineageUnavailable])
"""


class Collected:
    """What the client printed, and the events of the driver."""

    def __init__(self, folder: Path, client: str) -> None:
        self.folder = folder
        self.client = client.splitlines()
        self.events: list[dict[str, Any]] = [
            json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()
        ]

    def end(self, output: str) -> dict[str, Any]:
        """The end of the run that wrote it."""
        name = str(self.folder / output)
        (found,) = [
            event
            for event in self.events
            if event["eventType"] == "COMPLETE" and [each["name"] for each in event["outputs"]] == [name]
        ]
        return found


def environ(events: Path, **more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPENLINEAGE")}
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    collected = {
        "PYTHONPATH": str(ROOT),
        "OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "OPENLINEAGE__HEADWATER__DEADLINE_MILLIS": "120000",  # the machine may be busy
        "OPENLINEAGE__HEADWATER__EXIT_MILLIS": "200000",
    }
    return inherited | collected | more


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """One cluster, one driver, one client: their start costs more than what they do."""
    folder = tmp_path_factory.mktemp("driver")
    with SparkCluster(tmp_path_factory.mktemp("cluster"), workers=1) as cluster:
        client = run_driver(cluster, folder)
    return Collected(folder, client)


def run_driver(cluster: SparkCluster, folder: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
    settings = cluster.settings()
    if not MISSING:
        settings |= {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": port,
            "spark.connect.grpc.binding.address": "127.0.0.1",
        }
    pairs = [f"{key}={value}" for key, value in settings.items()]
    log = folder / "driver.log"
    with log.open("w") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.lineage.cluster_driver", cluster.master, str(folder), *pairs],
            cwd=folder,
            env=environ(folder / "events.jsonl", HEADWATER_LINEAGE="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        try:
            assert driver.stdout.readline() == "ready\n", log.read_text()[-3000:]
            printed = run_client(port, folder) if not MISSING else ""
            driver.stdin.close()
            assert driver.wait(SECONDS) == 0, log.read_text()[-3000:]
        finally:
            driver.kill()
    return printed


def run_client(port: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, f"sc://127.0.0.1:{port}", str(folder)],
        cwd=folder,
        env=environ(folder / "of-the-client.jsonl"),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "of-the-client.jsonl").exists()
    return done.stdout


def test_lineage_is_sent_when_the_driver_is_on_a_cluster(collected: Collected) -> None:
    validate(collected.events)
    assert collected.events[0]["run"]["facets"]["spark_applicationDetails"]["master"].startswith("spark://")
    written = collected.end("own")["outputs"][0]
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 20, "numbers of other processes"
    assert [field["name"] for field in written["facets"]["schema"]["fields"]] == ["id", "twice"]
    assert collected.events[-1]["job"]["facets"]["jobType"]["jobType"] == "APPLICATION"
    runs: dict[str, list[str]] = {}
    for event in collected.events:
        runs.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert set(map(tuple, runs.values())) == {("START", "COMPLETE")}


@pytest.mark.skipif(bool(MISSING), reason=f"Spark Connect needs {', '.join(MISSING)}")
def test_a_client_works_and_warns_when_it_installs_lineage(collected: Collected) -> None:
    assert collected.client[0] == "290"
    assert "Spark Connect client sees no plans" in collected.client[1]


@pytest.mark.skipif(bool(MISSING), reason=f"Spark Connect needs {', '.join(MISSING)}")
def test_the_server_sends_the_lineage_of_its_clients_when_they_write(collected: Collected) -> None:
    end = collected.end("total")
    assert [each["name"] for each in end["inputs"]] == [str(collected.folder / "own")]
    fields = end["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert [each["field"] for each in fields["total"]["inputFields"]] == ["twice"]
