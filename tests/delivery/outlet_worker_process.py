"""A process that delivers a log to an outlet, and may be killed at a crash point."""

from __future__ import annotations

from pathlib import Path

from tests.delivery.rig import Rig, eventually

BATCH = 10


def main(folder: str, url: str, group_by: str) -> None:
    with Rig(Path(folder)) as rig:
        keys = tuple(filter(None, group_by.split(",")))
        rig.drain(url=url, max_batch_events=BATCH, group_by=keys, max_in_flight=2)
        assert eventually(rig.settled)
