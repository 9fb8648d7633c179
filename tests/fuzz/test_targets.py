"""Every reader of bytes from outside, with kept inputs, changes of them, and a search (G9, G12)."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS
from tests.sources import ROOT

CASES = ROOT / "tests" / "cases" / "fuzz"
CHANGES = 150  # of each target in the quick tests


def changed(seed: bytes, dice: random.Random) -> bytes:
    """The seed with a few bytes removed, repeated, replaced or added."""
    found = bytearray(seed)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(found) + 1)
        match dice.randrange(4):
            case 0:
                del found[at : at + dice.randint(1, 8)]
            case 1:
                found[at:at] = found[at : at + dice.randint(1, 30)]
            case 2:
                found[at : at + 1] = dice.randbytes(1)
            case _:
                found[at:at] = dice.choice(
                    (b"\r\n", b"\n", b"\0", b"\t", b"0", b"-1", b"{", b'"', b"\xff\xff")
                )
    return bytes(found)


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_reader_when_it_is_kept_or_a_change_of_one(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "headwater")  # hostile input is logged at length
    target, seeds = TARGETS[name]
    kept = [path.read_bytes() for path in sorted((CASES / name).glob("*"))]
    inputs = [*seeds(), *kept]
    for data in (b"", *inputs):
        target(data)
    dice = random.Random(name)
    for _ in range(CHANGES if name != "partition_reader" else 20):
        target(changed(dice.choice(inputs), dice))


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_reader_when_coverage_guides_the_search(
    name: str, full: bool, tmp_path: Path
) -> None:
    pytest.importorskip("atheris", reason="not published: atheris for this machine")
    runs = 200 if name == "partition_reader" else 2000  # seconds
    size = ("--seconds", "1800") if full else ("--runs", str(runs))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.coverage", name, *size, "--corpus", str(tmp_path), "--seed", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert "stat::number_of_executed_units" in done.stderr
