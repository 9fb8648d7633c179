"""The alert rules: each fires in Prometheus' own evaluation, and none where all is well."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.metrics import CATALOGUE
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


@pytest.mark.long
def test_each_alert_fires_alone_when_only_its_state_is_bad(tmp_path: Path) -> None:
    try:
        promtool = find_promtool()
    except Missing as missing:
        pytest.skip(str(missing))

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
