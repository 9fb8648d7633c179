"""The alert rules: each fires in Prometheus' own evaluation, and none where all is well."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from prometheus_client.openmetrics import parser

from headwater.cli.serve import Server
from headwater.errors import LogUnavailable
from headwater.log.rejects.store import NewReject
from headwater.log.streams import StreamCursor, identity_of
from headwater.metrics import CATALOGUE, Metrics
from headwater.settings import Settings
from tests.parts.cache import Missing
from tests.parts.promtool import find_promtool
from tests.sources import ROOT

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
METRIC = re.compile(r"\bheadwater_\w+")
# What Prometheus has scraped where all is well, minute by minute, and where something is not.
WELL = {
    'up{job="headwater"}': "1",
    'headwater_delivery_lag_seconds{outlet="a"}': "3",
    'headwater_delivery_failing{outlet="a"}': "0",
    'headwater_log_events_dropped_total{reader="a",reason="age"}': "5",
    'headwater_rejects_dropped_total{stage="outlet:a",reason="bytes"}': "5",
    'headwater_rejects_full_ratio{kind="outlets"}': "0.5",
    'headwater_rejects_by_stage{stage="outlet:a"}': "0",
    "headwater_log_damaged_files": "0",
    "headwater_events_damaged_files": "0",
    'headwater_log_commit_errors_total{reason="io"}': "7",
    'headwater_incoming_commit_errors_total{reason="io"}': "7",
    "headwater_disk_free_bytes": "90000000000",
    'headwater_stream_waiting_events{stream="live"}': "9",
    'headwater_stream_running{stream="live"}': "1",
    'headwater_stream_failing{stream="live"}': "0",
    'headwater_stream_missing_events{stream="live"}': "0",
    "headwater_incoming_oldest_seconds": "20",
    "headwater_pipeline_last_cycle_errors": "0",
    'headwater_orphaned_events{destination="old"}': "0",
    'headwater_orphaned_files{destination="old"}': "0",
    "headwater_graph_lag_events": "0",
}
GROWS = "5+1x120"
TROUBLE = {
    "HeadwaterDown": {'up{job="headwater"}': "0"},
    "HeadwaterOutletLags": {'headwater_delivery_lag_seconds{outlet="a"}': "3600"},
    "HeadwaterOutletFails": {'headwater_delivery_failing{outlet="a"}': "1"},
    "HeadwaterEventsDropped": {'headwater_log_events_dropped_total{reader="a",reason="age"}': GROWS},
    "HeadwaterRejectsDropped": {'headwater_rejects_dropped_total{stage="outlet:a",reason="bytes"}': GROWS},
    "HeadwaterRejectsFull": {'headwater_rejects_full_ratio{kind="outlets"}': "0.95"},
    "HeadwaterRejectsOpen": {'headwater_rejects_by_stage{stage="outlet:a"}': "3"},
    "HeadwaterDamage": {"headwater_events_damaged_files": "1"},
    "HeadwaterCommitsFail": {'headwater_incoming_commit_errors_total{reason="io"}': GROWS},
    "HeadwaterDiskFills": {"headwater_disk_free_bytes": "1000"},
    "HeadwaterStreamStops": {'headwater_stream_running{stream="live"}': "0"},
    "HeadwaterStreamFails": {'headwater_stream_failing{stream="live"}': "1"},
    "HeadwaterStreamLostEvents": {'headwater_stream_missing_events{stream="live"}': GROWS},
    "HeadwaterFilesWait": {"headwater_incoming_oldest_seconds": "7200"},
    "HeadwaterCycleFails": {"headwater_pipeline_last_cycle_errors": "2"},
    "HeadwaterOrphans": {'headwater_orphaned_files{destination="old"}': "3"},
    "HeadwaterGraphLags": {"headwater_graph_lag_events": "50000"},
}
MIB = 1024 * 1024
# One loss alone, between two scrapes of a server that had none before, fires these.
FIRST_LOSS = {
    "HeadwaterEventsDropped",
    "HeadwaterRejectsDropped",
    "HeadwaterCommitsFail",
    "HeadwaterStreamLostEvents",
}


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_every_metric_exists_and_every_rule_has_a_case_when_the_rules_are_read() -> None:
    suffix = {"counter": "_total"}
    known = {f"{each.name}{suffix.get(each.kind, '')}" for each in CATALOGUE}
    assert {name for rule in rules() for name in METRIC.findall(rule["expr"])} <= known
    assert {name.partition("{")[0] for name in WELL} - {"up"} <= known
    assert {rule["alert"] for rule in rules()} == TROUBLE.keys()


def scrape(metrics: Metrics) -> dict[str, float]:
    """The numbers that Prometheus reads, by series."""
    families = parser.text_string_to_metric_families(metrics.openmetrics())  # type: ignore[no-untyped-call]
    found = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = ",".join(f'{key}="{value}"' for key, value in sample.labels.items())
        found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def scrapes_around_first_losses(folder: Path) -> tuple[dict[str, float], dict[str, float], list[str]]:
    """What a server reports before and after it has lost events in each way, and its reasons in /readyz."""
    settings = msgspec.convert(
        {
            "data_dir": str(folder),
            "log": {"partition_bytes": MIB // 4, "retention_bytes": MIB},
            "outlets": [{"name": "a", "type": "file", "options": {"path": str(folder / "a.jsonl")}}],
            "tokens": [{"id": "web", "server_secret": "s"}],
            "destinations": [{"id": "live", "type": "duckdb", "mode": "stream"}],
        },
        Settings,
    )
    server = Server(settings)

    async def run() -> tuple[dict[str, float], dict[str, float], list[str]]:
        server.compose()
        try:
            log, rejects, queues, watch = server._log, server._rejects, server._queues, server._pipeline
            assert log is not None
            assert rejects is not None
            assert queues is not None
            assert watch is not None
            watch.look()
            assert server._health() == []
            before = scrape(server.metrics)
            for number in range(8):
                log.append_wait([random.Random(number).randbytes(MIB // 4)])
                rejects.add("outlet:a", [NewReject("no", bytes(MIB // 4), position=number + 1)])
            log.collect()
            cursor = StreamCursor.peek(queue := queues.log("live").folder) or StreamCursor(
                queue=identity_of(queue), position=1, archived=1
            )
            cursor.missing, cursor.missing_at = 4, log.clock.now()
            cursor.save(queue)
            watch.look()
            for opened in (log, queues.log("live")):
                place = opened.folder
                away = place.rename(place.with_name("away"))
                place.mkdir()
                with pytest.raises(LogUnavailable):
                    opened.append_wait([b"{}"])
                place.rename(place.with_name(f"empty-{place.name}"))
                away.rename(place)
            return before, scrape(server.metrics), server._health()
        finally:
            await server.close()

    return asyncio.run(run())


def test_a_series_shows_growth_when_it_counts_its_first_loss(tmp_path: Path) -> None:
    before, after, reasons = scrapes_around_first_losses(tmp_path)
    for name in (
        "headwater_log_events_dropped_total",
        "headwater_rejects_dropped_total",
        "headwater_log_commit_errors_total",
        "headwater_queue_commit_errors_total",
        "headwater_stream_missing_events",
    ):
        grown = {series: value for series, value in after.items() if series.startswith(name) and value}
        assert grown, name
        assert {series: before.get(series) for series in grown} == dict.fromkeys(grown, 0), name
    assert {series for series in before if series.startswith("headwater_incoming_commit_errors_total")}
    text = "\n".join(reasons)
    assert "log: events were dropped: " in text
    assert "for the reader a by bytes" in text
    assert "stream live: 4 event(s) were missing from its queue" in text


def promtool_or_skip() -> Path:
    try:
        return find_promtool()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.long
def test_the_alerts_of_losses_fire_when_a_server_loses_its_first_events(tmp_path: Path) -> None:
    promtool = promtool_or_skip()
    before, after, _ = scrapes_around_first_losses(tmp_path / "data")
    series = [
        # an hour of the first scrape, then the second; `_` is a minute without the series
        {"series": name, "values": f"{f'{before[name]}+0x59' if name in before else '_x60'} {value}+0x30"}
        for name, value in after.items()
    ]
    asked = [
        {
            "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0 or vector(0)',
            "eval_time": "63m",
            "exp_samples": [{"labels": "{}", "value": int(alert in FIRST_LOSS)}],
        }
        for alert in sorted(TROUBLE.keys() - {"HeadwaterDown"})
    ]
    cases = tmp_path / "cases.yml"
    case = {"interval": "1m", "input_series": series, "promql_expr_test": asked}
    cases.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [case]}), encoding="utf-8")
    command = f"{promtool} test rules {cases}"
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_each_alert_fires_alone_when_only_its_state_is_bad(tmp_path: Path) -> None:
    promtool = promtool_or_skip()

    def scraped(series: dict[str, str]) -> list[dict[str, str]]:
        values = {name: value if "x" in value else f"{value}+0x120" for name, value in series.items()}
        return [{"series": name, "values": value} for name, value in values.items()]

    tests = []
    for state, changes in {"well": {}, **TROUBLE}.items():
        asked = [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": "100m",
                "exp_samples": [{"labels": "{}", "value": int(alert == state)}],
            }
            for alert in TROUBLE
        ]
        series = scraped(WELL | changes)
        tests.append({"name": state, "interval": "1m", "input_series": series, "promql_expr_test": asked})
    cases = tmp_path / "cases.yml"
    cases.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}), encoding="utf-8")
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(cases)]):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
