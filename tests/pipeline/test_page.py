"""A reject, a click on the page, and its row in the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import httpx2
import pytest
from click.testing import CliRunner
from playwright.sync_api import expect, sync_playwright

from headwater.cli.main import cli
from tests.page.browser.server import chromium, launch, running_shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDS_TIME = "{{ event_type | lower }}_{{ _timestamp | date('%Y') }}"


@pytest.mark.long
def test_a_reject_is_a_row_when_it_was_replayed_by_a_click_after_the_fix(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chromium() is None:
        pytest.skip("no Chromium is installed, such as Debian's package chromium")
    monkeypatch.chdir(tmp_path)

    def run_pipeline(template: str) -> None:
        settings = json.loads((tmp_path / "headwater.yml").read_text())
        settings["destinations"][0]["table_name_template"] = template
        (tmp_path / "headwater.yml").write_text(json.dumps(settings))
        done = CliRunner().invoke(cli, ["pipeline", "run", "--no-lineage"], prog_name="headwater")
        assert done.exit_code == 0, done.output

    with running_shop(tmp_path, rotation_minutes=0.02) as shop:
        shop.orders(2, amount=1.5)
        shop.orders(1, amount=99.0, _timestamp="yesterday")
        shop.rotated()
        run_pipeline(NEEDS_TIME)
        with sync_playwright() as driver, launch(driver) as browser:
            page = browser.new_page()
            page.goto(shop.address("/rejects", stage="destination:warehouse"))
            expect(page.locator(".rejects .reason")).to_contain_text("date")
            page.get_by_role("button", name="Replay all 1").click()
            expect(page.locator(".rejects > li")).to_have_count(0)
        run_pipeline("{{ event_type | lower }}")
        with duckdb.connect(str(tmp_path / "w.duckdb"), read_only=True) as warehouse:
            assert warehouse.sql('SELECT amount FROM "order"').fetchall() == [(99.0,)]
            assert warehouse.sql('SELECT count(*) FROM "order_2026"').fetchall() == [(2,)]
        shown = httpx2.get(shop.address("/rejects"), timeout=60).text
        assert "No rejects" in shown
