"""A real cluster: a master, two workers, an object store; and a worker that is killed in the middle."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyspark
import pytest
import yaml

from headwater.errors import SettingsError
from headwater.log.queue.offline import export
from headwater.pipeline.spark.cluster_packages import is_cluster
from headwater.pipeline.spark.standalone_master import check_master
from headwater.pipeline.spark.storage import ObjectFolder, Staging, StagingUnavailable
from headwater.settings import PipelineSettings
from tests.parts.cache import Missing
from tests.parts.clean_install import clean_python
from tests.parts.object_store import SECRET, ObjectStore
from tests.parts.spark_cluster import SparkCluster

LIMIT_SECONDS = 3600


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    try:
        made = ObjectStore()
    except Missing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


def until(condition: Callable[[], bool], what: str, driver: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert driver.poll() is None, f"the driver ended before {what}"
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.1)


def event(number: int, pad: str) -> dict[str, Any]:
    chance = random.Random(number)
    address = f"8.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
    kind = "view" if number % 3 else "order"
    return {"event_type": kind, "n": number, "ip": address, "user": {"id": number % 97}, "pad": pad}


def write_events(folder: Path, total: int) -> None:
    """Files of three sizes: small ones, which are taken together, and large ones of more than one split."""
    folder.mkdir(parents=True)
    large = max(1, total // 250_000)
    per_large, small = int(total * 0.7) // large, 6
    counts = [(total - per_large * large) // small] * small
    counts[0] += total - per_large * large - sum(counts)
    sizes = [*counts[:3], *[per_large] * large, *counts[3:]]
    # as much text as makes the large files larger than what one task reads
    pad = "x" * (40 * 1024 * 1024 // per_large)
    number = 0
    for place, count in enumerate(sizes):
        path = folder / f"incoming.tok=web-2026-11-16T{place // 60:02d}-{place % 60:02d}-00.000.log"
        with path.open("w", encoding="utf-8") as file:
            for _ in range(count):
                file.write(json.dumps(event(number, pad if count == per_large else "")) + "\n")
                number += 1
    assert number == total


@pytest.mark.timeout(2 * LIMIT_SECONDS)
@pytest.mark.long
def test_every_event_is_a_row_once_when_a_worker_of_a_cluster_is_killed(
    store: ObjectStore, tmp_path: Path, full: bool
) -> None:
    total = 1_000_000 if full else 20_000
    write_events(tmp_path / "data" / "events" / "incoming", total)
    python = clean_python(tmp_path / "installed", "pipeline", "java")
    with SparkCluster(tmp_path / "cluster") as cluster:
        settings = {
            "data_dir": "data",
            "tokens": [{"id": "web", "server_secret": "s"}],
            "destinations": [
                {
                    "id": "dwh",
                    "type": "duckdb",
                    "path": str(tmp_path / "dwh.duckdb"),
                    "table_name_template": "{{ event_type }}",
                    "enrichment": [{"name": "ip_lookup", "from": "/ip", "to": "/geo"}],
                }
            ],
            "pipeline": {
                "staging_url": store.url("staging"),
                "memory": "1g",
                "lineage": {"url": "http://127.0.0.1:9"},  # nothing listens: the events stay in the spool
                "spark": cluster.settings() | {"spark.sql.shuffle.partitions": 2},
            },
        }
        page = {"spark.master.ui.port": cluster.page_port}
        assert check_master(PipelineSettings(master=cluster.master, spark=page)) == pyspark.__version__
        config = tmp_path / "headwater.yml"
        config.write_text(yaml.safe_dump(settings), encoding="utf-8")
        command = [str(python), "-m", "headwater", "-c", str(config), "pipeline", "run", "--lineage"]
        with (tmp_path / "driver.log").open("wb") as out:
            driver = subprocess.Popen(
                [*command, "--master", cluster.master], stdout=out, stderr=out, cwd=tmp_path
            )
        try:
            # the large file is being written by its tables: both workers have executors, and work to do
            until(lambda: any("/lines/part-" in name for name in store.objects()), "staging", driver)
            until(lambda: cluster.executors() == 2, "the second executor", driver)
            cluster.kill_worker(0)
            driver.wait(LIMIT_SECONDS)
        finally:
            driver.kill()
        output = (tmp_path / "driver.log").read_text(encoding="utf-8")
        log = (tmp_path / "data" / "spark.log").read_text(encoding="utf-8", errors="replace")

        assert driver.returncode == 0, f"{output}\n{log[-4000:]}"
        assert "Lost executor" in log, "the driver lost no executor"
        # each worker was sent the packages, into a folder of its own
        assert all(list(cluster.work(number).glob("app-*/*/headwater_packages")) for number in range(2))
    with duckdb.connect(str(tmp_path / "dwh.duckdb")) as connection:
        found = connection.execute(
            "SELECT count(*), count(DISTINCT n), min(n), max(n), count(geo_country) FROM "
            '(SELECT n, geo_country FROM "view" UNION ALL SELECT n, geo_country FROM "order")'
        ).fetchone()
    assert found is not None
    assert found[:4] == (total, total, 0, total - 1)
    assert found[4] > total * 0.9, "addresses were looked up by the executors"
    assert store.objects() == [], "what was staged is removed"
    assert SECRET not in log + output
    check_lineage(tmp_path)


def check_lineage(folder: Path) -> None:
    """Every column that comes from the events leads to its place there, from all files (G11)."""
    found: dict[str, dict[str, set[tuple[str, str]]]] = {}
    [spool] = (folder / "data" / "lineage-spool").glob("spool-*")
    events = [json.loads(event.body) for event in export(spool)]
    for event in events:
        for output in event.get("outputs", ()) if event["eventType"] == "COMPLETE" else ():
            facet = output["facets"]["columnLineage"]
            assert {"event_type", "n", "ip", "pad", "user_id"} <= set(facet["fields"]), "in every load"
            table = found.setdefault(output["name"].removeprefix("main."), {})
            for column, inputs in facet["fields"].items():
                for one in inputs["inputFields"]:
                    assert (one["namespace"], one["name"]) == ("file", str(folder / "data/events/incoming"))
                    table.setdefault(column, set()).add((one["field"], one.get("jsonPointer", "")))
    assert sorted(found) == ["order", "view"]
    for table in found.values():
        for column in ("event_type", "n", "ip", "pad"):
            assert table[column] == {("value", f"/{column}")}
        assert table["user_id"] == {("value", "/user/id")}


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", False), ("local[*]", False), ("local-cluster[2,1,512]", True), ("spark://h:7077", True)],
)
def test_executors_are_elsewhere_when_the_master_says_so(master: str, expected: bool) -> None:
    assert is_cluster(master) == expected


def test_what_is_left_or_done_with_is_removed_when_a_driver_has_died_or_goes_on(
    store: ObjectStore, tmp_path: Path
) -> None:
    program = (
        "import os, sys; from pathlib import Path; from headwater.pipeline.spark.storage import Staging\n"
        "staging = Staging(Path(sys.argv[1]), sys.argv[2])\n"
        "staging.uploaded([Path(sys.argv[3])]); os._exit(9)"
    )
    source = tmp_path / "source"
    source.write_bytes(b"{}\n")
    root, url = tmp_path / "staging", store.url("left")
    subprocess.run([sys.executable, "-c", program, str(root), url, str(source)], check=False)
    assert len(store.objects("left")) == 1

    with Staging(root, url) as staging:
        assert store.objects("left") == []
        other = tmp_path / "other"
        other.write_bytes(b"[]\n")
        # only what is being worked on takes space there
        assert staging.uploaded([source]) == staging.uploaded([source])
        staging.uploaded([other])
        assert len(store.objects("left")) == 1
    assert store.objects("left") == []


def test_no_empty_object_stays_when_what_was_staged_is_removed(store: ObjectStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"{}\n")
    for _ in range(2):
        with Staging(tmp_path / "staging", store.url("clean")) as staging, staging.folder() as folder:
            shared = staging.executor_folder(folder)
            assert isinstance(shared, ObjectFolder)
            staging.uploaded([source])
            (shared / "lines" / "part-0").upload(source)
    assert store.keys("clean") == ["clean/"], "the prefix itself, however many cycles there were"


def test_the_error_has_no_secret_when_the_store_cannot_be_used(store: ObjectStore, tmp_path: Path) -> None:
    wrong = store.url("x").replace(store.bucket, "no-such-bucket")
    with pytest.raises(StagingUnavailable) as refused:
        Staging(tmp_path, wrong)
    assert "no-such-bucket/x" in str(refused.value)
    assert SECRET not in str(refused.value)
    with pytest.raises(SettingsError, match="staging_url"):
        ObjectFolder("nothing://a/b").filesystem_and_path()
