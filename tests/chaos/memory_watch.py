"""What is measured while everything runs: memory of the parts, and how far the work is; as a plot."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

__all__ = ["Watch"]

EVERY_SECONDS = 1.0
WARM_SECONDS = 90.0  # of a process, in which it loads what it needs and grows to its size
SETTLED_SAMPLES = 60  # of a life after that, or nothing is said about its growth
GROWTH = 1.3  # what the later half of such a life may have of the earlier one
MOST_MB = {"gateway": 192.0, "batch driver": 512.0, "stream driver": 512.0}
LEAST_MB = 32.0  # growth below this is noise
BARS = " ▁▂▃▄▅▆▇█"
COLUMNS = 72
WIDTH, HEIGHT, LEFT, TOP = 900, 150, 70, 30
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed")


class Sample(NamedTuple):
    """One look."""

    at: float
    megabytes: dict[str, tuple[int, float]]  # by part: its process, and what that has in memory
    progress: dict[str, int]


class Watch:
    """Looks every second, on a thread of its own."""

    def __init__(self, parts: Callable[[], dict[str, int]], progress: Callable[[], dict[str, int]]) -> None:
        self._parts = parts
        self._progress = progress
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.samples: list[Sample] = []
        self.marks: list[tuple[float, str]] = []

    def start(self) -> None:
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def mark(self, what: str) -> None:
        """Something was killed now."""
        self.marks.append((time.monotonic() - self._began, what))

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_SECONDS):
            megabytes = {}
            for name, pid in self._parts().items():
                if (found := _resident(pid)) is not None:
                    megabytes[name] = (pid, found)
            self.samples.append(Sample(time.monotonic() - self._began, megabytes, self._progress()))

    def verdicts(self) -> list[tuple[str, str, bool]]:
        """For each part, whether its processes stayed small, and kept their size once they had it (G8)."""
        found = []
        for name in self._names():
            lives: dict[int, list[tuple[float, float]]] = {}
            for sample in self.samples:
                if name in sample.megabytes:
                    pid, megabytes = sample.megabytes[name]
                    lives.setdefault(pid, []).append((sample.at, megabytes))
            growth, worst = 1.0, ""
            for life in lives.values():
                settled = [megabytes for at, megabytes in life if at - life[0][0] >= WARM_SECONDS]
                if len(settled) < SETTLED_SAMPLES:
                    continue
                half = len(settled) // 2
                early, late = statistics.median(settled[:half]), statistics.median(settled[half:])
                if late - early > LEAST_MB and late / early > growth:
                    growth, worst = late / early, f", one grew from {early:.0f} to {late:.0f} MB"
            most = max(megabytes for life in lives.values() for _, megabytes in life)
            text = f"{len(lives)} process(es){worst}, at most {most:.0f} MB"
            is_good = growth <= GROWTH and most <= MOST_MB[name]
            found.append((f"memory of {name} (G8)", f"{text} of {MOST_MB[name]:.0f}", is_good))
        return found

    def _names(self) -> list[str]:
        return sorted({name for sample in self.samples for name in sample.megabytes} - {"workers", "jvm"})

    def _series(self) -> dict[str, list[tuple[float, float]]]:
        found: dict[str, list[tuple[float, float]]] = {}
        for sample in self.samples:
            for name, count in sample.progress.items():
                found.setdefault(f"events {name}", []).append((sample.at, count))
            for name, (_, megabytes) in sample.megabytes.items():
                if name in self._names():
                    found.setdefault(f"MB of {name}", []).append((sample.at, megabytes))
        return found

    def plot(self) -> list[str]:
        """A line of bars for each series, and one with the deaths."""
        end = max((sample.at for sample in self.samples), default=1.0)
        series = self._series()
        width = max(map(len, [*series, "deaths"]), default=0)
        lines = []
        for name, points in series.items():
            bars = [0.0] * COLUMNS
            for at, value in points:
                place = min(COLUMNS - 1, int(at / end * COLUMNS))
                bars[place] = max(bars[place], value)
            most = max(bars) or 1.0
            drawn = "".join(BARS[round(value / most * (len(BARS) - 1))] for value in bars)
            lines.append(f"{name:{width}} {drawn} {most:,.0f}")
        deaths = [" "] * COLUMNS
        for at, _ in self.marks:
            deaths[min(COLUMNS - 1, int(at / end * COLUMNS))] = "x"
        return [*lines, f"{'deaths':{width}} {''.join(deaths)} {len(self.marks)}"]

    def svg(self) -> str:
        """Two diagrams, events and memory, with the deaths as lines."""
        end = max((sample.at for sample in self.samples), default=1.0)
        series = self._series()
        groups = [
            {name: points for name, points in series.items() if name.startswith(word)}
            for word in ("events", "MB")
        ]
        drawn = [_diagram(group, end, self.marks, number) for number, group in enumerate(groups)]
        total = 2 * (HEIGHT + 2 * TOP)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + LEFT + 20} {total}" '
            f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
            + "".join(drawn)
            + "</svg>"
        )


def _diagram(
    group: dict[str, list[tuple[float, float]]], end: float, marks: list[tuple[float, str]], number: int
) -> str:
    top = number * (HEIGHT + 2 * TOP) + TOP
    most = max((value for points in group.values() for _, value in points), default=0.0) or 1.0
    parts = [f'<text x="{LEFT - 6}" y="{top + 8}" text-anchor="end">{most:,.0f}</text>']
    for at, what in marks:
        x = LEFT + at / end * WIDTH
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + HEIGHT}" stroke="#ddd">'
            f"<title>{what}</title></line>"
        )
    for place, (name, points) in enumerate(group.items()):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(
            f"{LEFT + at / end * WIDTH:.1f},{top + HEIGHT - value / most * HEIGHT:.1f}"
            for at, value in points
        )
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{LEFT + place * 170}" y="{top - 8}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{LEFT + WIDTH}" y="{top + HEIGHT + 14}" text-anchor="end">{end:.0f} s</text>')
    return "".join(parts)


def _resident(pid: int) -> float | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))
    except (OSError, StopIteration):
        return None
