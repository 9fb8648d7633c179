"""The first batch does not decide the type of a column for good."""

from __future__ import annotations

import msgspec
from click.testing import CliRunner

from headwater.cli.main import cli
from tests.pipeline.rig import Rig


def test_columns_stay_as_they_are_when_nothing_else_is_configured(rig: Rig) -> None:
    rig.load({"n": 1})
    rig.load({"n": 0.5})
    assert rig.types()["n"] == "BIGINT"
    assert rig.rows()[1] == {"_unmapped_data": '{"n":0.5}'}


def test_a_number_column_takes_fractions_and_no_text_when_numbers_may_widen(rig: Rig) -> None:
    rig.load({"n": 1, "m": 1}, widen_columns="numbers")
    report = rig.load({"n": 0.5, "m": "x"}, widen_columns="numbers")
    assert report.is_complete
    assert (rig.types()["n"], rig.types()["m"]) == ("DOUBLE", "BIGINT")
    assert rig.rows() == [{"n": 1.0, "m": 1}, {"n": 0.5, "_unmapped_data": '{"m":"x"}'}]


def test_a_table_is_not_rewritten_when_it_is_larger_than_the_limit(rig: Rig) -> None:
    rig.load({"n": 1}, {"n": 2})
    report = rig.load({"n": "x"}, widen_columns="text", max_widen_rows=1)
    assert report.is_complete
    assert rig.types()["n"] == "BIGINT"
    assert rig.rows()[2] == {"_unmapped_data": '{"n":"x"}'}


def test_values_of_before_move_when_the_column_was_widened_later(rig: Rig) -> None:
    rig.load({"id": 1, "n": 1}, {"id": 2, "n": 0.5}, primary_key=["id"])
    rig.load({"id": 3, "n": "early"}, primary_key=["id"])
    rig.load({"id": 4, "n": "later"}, primary_key=["id"], widen_columns="text")
    assert rig.types()["n"] == "VARCHAR"
    assert rig.rows()[2] == {"id": 3, "_unmapped_data": '{"n":"early"}'}
    settings = rig.settings({"primary_key": ["id"]})
    config = rig.folder / "headwater.yml"
    config.write_bytes(
        msgspec.json.encode({"data_dir": settings.data_dir, "destinations": settings.destinations})
    )
    result = CliRunner().invoke(cli, ["-c", str(config), "tables", "heal", "events"])
    assert result.exit_code == 0, result.output
    assert "1 value(s) of 1 row(s) moved" in result.output
    values = {row["id"]: row["n"] for row in rig.rows()}
    assert values[3] == "early"
    assert values[4] == "later"
