from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from urllib.request import urlopen

import pytest
from deltalake import DeltaTable

from headwater.cli import demo
from headwater.cli.demo.delivery import Producer
from headwater.cli.demo.pipeline import run_pipeline
from headwater.cli.demo.shop import first_day, order_table, second_day
from headwater.log.queue.offline import commits


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", "demo", "--events", "30", "--part", "sidecar", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
    )


@pytest.mark.long
def test_nothing_is_lost_when_everything_is_killed_in_the_demo(tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    delivery = json.loads(done.stdout)["sidecar"]
    assert delivery["sent"] == 150
    assert delivery["kills"] == 3
    assert (delivery["lost"], delivery["out_of_order"]) == (0, 0)
    assert delivery["delivered"] >= delivery["acknowledged"] >= 90
    assert "waiting until everything is delivered" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
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
    delivery = producer.compare(journal)
    assert (delivery.delivered, delivery.duplicates, delivery.lost, delivery.out_of_order) == (4, 2, 2, 1)


@pytest.mark.parametrize("year", [2026, 2027, 2031])
def test_the_report_reads_the_table_of_the_year_when_it_is_another_one(year: int) -> None:
    today = date(year, 1, 1)
    events = first_day(60, today) + second_day(60, today)
    years = {event["_timestamp"][:4] for event in events} - {"yest"}
    assert years == {str(year)}
    assert order_table(today) == f"order_{year}"
    job = (Path(demo.__file__).parent / "report_job.py").read_text(encoding="utf-8")
    assert re.findall(r"20\d\d", job.rpartition('"""')[2]) == []


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("year", [2027, 2031])
def test_tables_types_counts_and_lineage_are_right_when_the_demo_runs_in_another_year(
    tmp_path: Path, year: int
) -> None:
    pytest.importorskip("pyspark", reason="Spark is missing: pip install 'headwater[pipeline,java]'")
    report = run_pipeline(tmp_path, 60, lambda text: None, date(year, 1, 1))
    assert report.acknowledged == 120
    assert report.adds_up
    assert min(report.skipped, report.rejected, report.unmapped) > 0
    tables = {table.name: table.columns for table in report.tables}
    orders, views = tables[f"order_{year}"], tables[f"pageview_{year}"]
    assert orders.items() >= {"amount": "DOUBLE", "customer_id": "VARCHAR"}.items()
    assert views["eventn_ctx_utc_time"] == "TIMESTAMP"
    assert views["eventn_ctx_user_is_new"] == "BOOLEAN"
    trace = "\n".join(report.trace)
    assert "value/amount " in trace
    assert "value/customer/address/city " in trace
    assert f"by pipeline.load_order_{year}_into_warehouse" in trace
    assert report.reasons == ['the filter `date` got "yesterday", which is not a time']


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_trace_leads_through_a_version_of_the_lake_when_the_demo_has_one(tmp_path: Path) -> None:
    report = run_pipeline(tmp_path, 60, lambda text: None, date(2026, 11, 19), lake=True)
    assert report.adds_up
    tables = {table.name: table for table in report.tables}
    assert tables["order_2026"].columns.items() >= {"amount": "double", "customer_id": "string"}.items()
    stored = DeltaTable(str(tmp_path / "lake" / "order_2026"))
    assert tables["order_2026"].version == str(stored.version())
    trace = "\n".join(report.trace)
    assert "value/amount " in trace
    assert "by pipeline.load_order_2026_into_warehouse" in trace
    kept = commits(tmp_path / "data" / "log", 1)
    events = [json.loads(body) for commit in kept for body in commit.bodies]
    versions = {
        each["facets"]["version"]["datasetVersion"]
        for event in events
        for each in event.get("inputs", [])
        if each["name"].endswith("/order_2026") and "version" in each.get("facets", {})
    }
    assert versions == {str(stored.version())}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_report_is_printed_and_its_trace_is_shown_when_the_demo_runs_as_typed(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="Spark is missing: pip install 'headwater[java,pipeline]'")
    command = ["demo", "--part", "pipeline", "--events", "60", "--json", "--keep-running"]
    demo = subprocess.Popen(
        [sys.executable, "-m", "headwater", *command],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    )
    assert demo.stdout is not None
    output = ""
    try:
        while "Ctrl-C ends the demo." not in output:
            line = demo.stdout.readline()
            assert line, output
            output += line
        load = json.loads(output[: output.index("\n}\n") + 3])["pipeline"]
        assert load["acknowledged"] == 120 == load["rows"] + load["skipped"] + load["rejected"]
        (address,) = re.findall(r"trace of the report's revenue: (http\S+)", output)
        with urlopen(address) as answer:
            page = answer.read().decode()
        assert "value/amount" in page
        assert "No column" not in page
    finally:
        demo.terminate()
        demo.communicate(timeout=300)
    assert demo.returncode == 0
    assert list(tmp_path.glob("headwater-demo-*")) == []
