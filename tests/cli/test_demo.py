from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.demo.processes import Producer


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", "demo", "--events", "30", "--part", "sidecar", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
    )


def test_nothing_is_lost_when_everything_is_killed_in_the_demo(tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    journey = json.loads(done.stdout)["sidecar"]
    assert journey["sent"] == 150
    assert journey["kills"] == 3
    assert (journey["lost"], journey["out_of_order"]) == (0, 0)
    assert journey["delivered"] >= journey["acknowledged"] >= 90
    assert "waiting until everything is delivered" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_table_and_the_folder_are_shown_when_it_is_kept(tmp_path: Path) -> None:
    done = run(tmp_path, "--keep")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["sent", "150", "by", "the", "producer"] in rows
    (folder,) = tmp_path.iterdir()
    assert str(folder / "received.ndjson") in done.stdout
    assert (folder / "received.ndjson").read_bytes().count(b"\n") >= 90


def test_losses_duplicates_and_disorder_are_counted_when_there_are_any() -> None:
    producer = Producer("http://127.0.0.1:9")
    producer.sent = 6
    producer.acknowledged = [1, 2, 3, 4, 6]
    journal = [{"outputs": [{"name": str(number)}]} for number in (1, 3, 2, 2, 3, 5)]
    journey = producer.compare(journal)
    assert (journey.delivered, journey.duplicates, journey.lost, journey.out_of_order) == (4, 2, 2, 1)


@pytest.mark.timeout(1200)
def test_tables_types_and_numbers_are_right_when_the_demo_makes_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="Spark is missing: pip install 'headwater[pipeline,java]'")
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "demo", "--part", "pipeline", "--events", "60", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    tally = json.loads(done.stdout)["pipeline"]
    assert tally["acknowledged"] == 120 == tally["rows"] + tally["skipped"] + tally["rejected"]
    assert min(tally["skipped"], tally["rejected"], tally["unmapped"]) > 0
    orders, views = tally["tables"]
    assert orders["columns"].items() >= {"amount": "DOUBLE", "customer_id": "VARCHAR"}.items()
    assert orders["columns"]["coupon_percent"] == "BIGINT"
    assert views["columns"]["eventn_ctx_utc_time"] == "TIMESTAMP"
    assert views["columns"]["eventn_ctx_user_is_new"] == "BOOLEAN"
    trace = "\n".join(tally["trace"])
    assert "value/amount " in trace
    assert "value/customer/address/city " in trace
    assert "by pipeline.load_order_2026_into_warehouse" in trace
    assert tally["reasons"] == ['the filter `date` got "yesterday", which is no time']
    assert list(tmp_path.glob("headwater-demo-*")) == []
