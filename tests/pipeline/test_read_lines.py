"""Lines, their numbers, and staging."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.destinations.table import ROW
from headwater.pipeline.spark.storage import Staging
from headwater.pipeline.steps.read_lines import read_lines
from tests.pipeline.rig import Rig


def test_rows_are_numbered_in_the_order_of_the_lines_when_a_file_has_several_splits(rig: Rig) -> None:
    path = rig.file([b"%06d" % number + b"x" * 1000 for number in range(80_000)])
    lines = read_lines(rig.spark, path)
    assert lines.rdd.getNumPartitions() > 2
    found = lines.selectExpr("substring(value, 1, 6) AS n", ROW).orderBy(ROW).collect()
    assert [row["n"] for row in found] == [f"{number:06d}" for number in range(80_000)]
    # and the same when it is read again
    again = read_lines(rig.spark, path).selectExpr("substring(value, 1, 6) AS n", ROW).orderBy(ROW).collect()
    assert again == found


@pytest.mark.parametrize("size", [100_000, 1_500_000])
def test_each_line_has_its_own_number_when_splits_are_of_any_size(rig: Rig, size: int) -> None:
    path = rig.file([b"%06d" % number + b"x" * 90 for number in range(40_000)])
    options = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    before = {name: rig.spark.conf.get(name) for name in options}
    try:
        for name in options:
            rig.spark.conf.set(name, str(size))
        lines = read_lines(rig.spark, path)
        assert lines.rdd.getNumPartitions() > 2
        found = lines.selectExpr("substring(value, 1, 6) AS n", ROW).orderBy(ROW).collect()
    finally:
        for name, value in before.items():
            rig.spark.conf.set(name, str(value))
    assert [row["n"] for row in found] == [f"{number:06d}" for number in range(40_000)]
    assert len({row[ROW] for row in found}) == len(found)


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["torn", "whole"])
def test_the_last_line_is_one_when_its_newline_is_missing(rig: Rig, end: bytes) -> None:
    path = rig.file([])
    path.write_bytes(b'{"a": 1}\r\n{"a":\r2}' + end)
    assert [row["value"] for row in read_lines(rig.spark, path).collect()] == ['{"a": 1}\r', '{"a":\r2}']


def test_staging_of_the_living_stays_when_that_of_the_dead_is_removed(tmp_path: Path) -> None:
    with Staging(tmp_path) as living:
        with living.folder() as kept:
            dead = tmp_path / "cycle-dead"
            dead.mkdir()
            (dead / "lock").touch()
            with Staging(tmp_path) as other:
                assert other.path != living.path
                assert kept.exists()
                assert not dead.exists()
        assert not kept.exists()
    assert os.listdir(tmp_path) == []
