"""Small files that are staged together give the same rows as each alone."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import IncomingFile, unprocessed
from headwater.pipeline import load
from headwater.pipeline.batch.cycle import MAX_FILES, groups
from headwater.pipeline.steps.route import SMALL_BYTES
from tests.pipeline.rig import Rig
from tests.sources import ROOT

TEMPLATE = "{{ t }}{% if at is defined %}{{ at | date('%Y') }}{% endif %}"


def events_of(file: int) -> list[Any]:
    """Two tables, drifting fields, an event to skip, a malformed line, and an event whose template fails."""
    return [
        {"t": "a", "n": 10 * file, "drift": file if file % 2 else str(file)},
        b"{torn",
        {"t": "b", "n": 10 * file + 1, f"only_{file}": True},
        {"t": "", "n": 10 * file + 2},
        {"t": "a", "n": 10 * file + 3, "at": "no time"},
        {"t": "a", "n": 10 * file + 4},
    ]


def test_each_file_has_its_own_numbers_when_several_are_loaded_together(rig: Rig, tmp_path: Path) -> None:
    alone = Rig(rig.spark, tmp_path / "alone")
    settings, own = (each.settings({"table_name_template": TEMPLATE}) for each in (rig, alone))
    for file in range(1, 5):
        rig.file(events_of(file))
        alone.file(events_of(file))
        one = alone.jobs_of(lambda: alone.cycle(own))
    assert rig.jobs_of(lambda: rig.cycle(settings)) == one > 0, "four files cost as many jobs as one"
    assert rig.waiting() == []
    assert rig.archived() == alone.archived()
    statuses = [
        {path.name: json.loads(path.read_bytes()) for path in each.folder.glob("events/archive/*/*.status")}
        for each in (rig, alone)
    ]
    assert len(statuses[0]) == 4
    assert statuses[0] == statuses[1]
    sources = [sorted((each.source, each.error) for each in found.rejects()) for found in (rig, alone)]
    assert len(sources[0]) == 8
    assert sources[0] == sources[1]
    for table in ("a", "b"):
        assert [row["n"] for row in rig.rows(table)] == [row["n"] for row in alone.rows(table)]
    # one header for all of them: the conflict is seen at once, where the first file alone decides it later
    assert (rig.types("a")["drift"], alone.types("a")["drift"]) == ("VARCHAR", "BIGINT")
    assert rig.rows("b")[3] == {"t": "b", "n": 41, "only_4": True}


class Killed(BaseException):
    """Ends a cycle at a crash point, as a signal would end the process."""


def crash_in_process(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a cycle that ends after the third load."""
    loads = 0

    def crash_point(name: str) -> None:
        nonlocal loads
        loads += name == "pipeline.after_load"
        if loads == 3:
            raise Killed

    settings = rig.settings({"table_name_template": TEMPLATE})
    with monkeypatch.context() as patched:
        patched.setattr(load, "crash_point", crash_point)
        with pytest.raises(Killed):
            rig.cycle(settings)


def kill_process(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs `headwater pipeline run` in a process that is killed after the third load."""
    configured = {
        "data_dir": str(rig.folder),
        "tokens": [{"id": "web", "server_secret": "s"}],
        "destinations": [
            {
                "id": "dwh",
                "type": "duckdb",
                "path": str(rig.database()),
                "table_name_template": TEMPLATE,
            }
        ],
        "pipeline": {
            "master": "local[2]",
            "memory": "1g",
            "spark": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        },
    }
    config = rig.folder / "headwater.yml"
    config.write_text(json.dumps(configured))
    died = subprocess.run(
        [sys.executable, "-m", "headwater", "-c", str(config), "pipeline", "run"],
        cwd=ROOT,
        env=os.environ | {"HEADWATER_CRASH_POINT": "pipeline.after_load:3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr


@pytest.mark.parametrize("crash", [crash_in_process, pytest.param(kill_process, marks=pytest.mark.long)])
def test_nothing_is_doubled_when_a_crash_parts_a_group_and_the_next_one_is_another(
    rig: Rig, crash: Callable[[Rig, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = rig.settings({"table_name_template": TEMPLATE})
    paths = [rig.file(events_of(file)) for file in range(1, 5)]
    crash(rig, monkeypatch)
    # of the first table, two files are loaded and recorded, the third is loaded, the fourth is not
    assert [FileStatus.read(path.with_name(f"{path.name}.status")).is_done("dwh", "a") for path in paths] == [
        True,
        True,
        False,
        False,
    ]
    first = rig.sql("SELECT count(*) FROM a")
    assert first == [(6,)]
    # the next group lacks a file that another pipeline holds, and has one more
    rig.file(events_of(5))
    with paths[1].open("rb") as held:
        fcntl.flock(held.fileno(), fcntl.LOCK_EX)
        report = rig.cycle(settings)
    assert [(file.archived, file.busy) for file in report.files] == [
        (True, False),
        (False, True),
        (True, False),
        (True, False),
        (True, False),
    ]
    assert rig.cycle(settings).is_complete
    assert rig.waiting() == []
    for table, rows in (("a", 10), ("b", 5)):
        assert rig.sql(f"SELECT count(*), count(DISTINCT n) FROM {table}") == [(rows, rows)]
    assert len(rig.rejects()) == 10
    for path in rig.folder.glob("events/archive/*/*.status"):
        assert json.loads(path.read_bytes())["counts"] == {"dwh": {"events": 6, "skipped": 1, "rejected": 2}}


def before_first_load(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Runs the action when the rows are staged and the first load starts."""
    actions = [action]

    def crash_point(name: str) -> None:
        if actions and name == "pipeline.before_load":
            actions.pop()()

    monkeypatch.setattr(load, "crash_point", crash_point)


def test_others_are_loaded_when_a_file_disappears_in_the_middle(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = rig.file([{"n": 1}], token="web", is_checked=False)
    rig.file([{"n": 2}], token="other")
    before_first_load(monkeypatch, gone.unlink)
    report = rig.cycle()
    assert "not there any more" in report.files[0].error
    assert not report.is_complete
    assert report.files[1].archived
    assert rig.rows() == [{"n": 2}]
    assert list(rig.incoming.glob("incoming.*")) == [], "no status is left of a file that will not come back"
    assert rig.cycle().is_complete


def test_the_others_of_its_group_are_loaded_when_a_file_disappears_in_the_middle(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [rig.file([{"n": number}]) for number in range(3)]
    settings = rig.settings({"id": "first"}, {"id": "second"})
    before_first_load(monkeypatch, paths[1].unlink)
    report = rig.cycle(settings)
    assert [file.archived for file in report.files] == [True, False, True]
    assert "not there any more" in report.files[1].error
    assert [row["n"] for row in rig.rows(id="first")] == [0, 2]
    assert [row["n"] for row in rig.rows(id="second")] == [0, 2]
    assert rig.cycle(settings).files == []


def incoming(token: str, minute: int) -> IncomingFile:
    at = datetime(2026, 11, 16, 10, tzinfo=UTC) + timedelta(minutes=minute)
    return IncomingFile(Path(f"incoming.tok={token}-{minute}.log"), "incoming", token, at)


def test_only_small_neighbours_of_one_token_are_taken_together_when_files_wait() -> None:
    sizes = [("a", 5), ("a", SMALL_BYTES - 5), ("a", 1), ("b", 1), ("b", 2 * SMALL_BYTES), ("b", 1), ("a", 1)]
    files = [(incoming(token, minute), size) for minute, (token, size) in enumerate(sizes)]
    assert [len(group) for group in groups(files)] == [2, 1, 1, 1, 1, 1]
    assert [file for group in groups(files) for file in group] == [file for file, _ in files]
    many = [(incoming("a", minute), 1) for minute in range(2 * MAX_FILES + 1)]
    assert [len(group) for group in groups(many)] == [MAX_FILES, MAX_FILES, 1]
    assert list(groups([])) == []


def test_a_backlog_is_done_in_few_cycles_when_files_are_tiny(rig: Rig) -> None:
    for number in range(40):
        rig.file([{"n": number}])
    report = rig.cycle()
    assert report.is_complete
    assert len(report.files) == 40
    assert [row["n"] for row in rig.rows()] == list(range(40))
    assert unprocessed(rig.folder / "events") == []
