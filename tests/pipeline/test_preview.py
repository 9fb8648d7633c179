"""What one event would become."""

from __future__ import annotations

from headwater.pipeline.preview import preview
from tests.pipeline.rig import BROWSER_KEY, Rig

EVENT = b'{"api_key": "js.key", "event_type": "Buy", "price": 2.5,\n "source_ip": "8.8.8.8", "tags": [1]}\n'


def test_table_columns_types_and_values_are_shown_when_an_event_is_previewed(rig: Rig) -> None:
    settings = rig.settings(
        {"table_name_template": "{{ event_type | lower }}"},
        {"id": "pg", "type": "postgres", "options": {"url": "postgresql://nowhere/x"}},
        {"id": "none", "table_name_template": "{{ missing }}"},
        {"id": "fails", "table_name_template": "{{ missing | date('%Y') }}"},
    )
    dwh, postgres, none, fails = preview(settings, rig.spark, EVENT)
    assert (dwh.table, dwh.reason) == ("buy", "")
    columns = {column.name: (column.kind, column.sql_type, column.value) for column in dwh.columns}
    assert columns["price"] == ("FLOAT64", "DOUBLE", 2.5)
    assert columns["tags"] == ("STRING", "VARCHAR", "[1]")
    assert columns["api_key"][2] == BROWSER_KEY
    assert columns["eventn_ctx_location_country"][2] == "US"
    assert {column.name: column.sql_type for column in postgres.columns}["price"] == "numeric(38,18)"
    assert (none.table, none.reason, none.columns) == ("", "", [])
    assert "not a time" in fails.reason
    # nothing was stored
    assert not rig.database().exists()


def test_the_reason_is_shown_when_it_is_no_event(rig: Rig) -> None:
    [found] = preview(rig.settings(), rig.spark, b"[1]")
    assert (found.table, found.reason) == ("", "not a JSON object but an array")
