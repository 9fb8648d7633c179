"""A flame graph of what a JVM did, from the samples of its flight recorder.

    python -m bench.flame_graph RECORDING.jfr PICTURE.svg [--thread WORD] [--title TEXT] [--top N]

`bench/pipeline.py --record FILE.jfr` makes such a recording. The width of a box is its part of the samples;
what stands on it was called by it. Boxes of less than two pixels are left out. `--top` prints the methods
that ran most themselves, and those with most samples below them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec

__all__ = ["Stack", "draw", "stacks"]

Stack = tuple[str, ...]

WIDTH = 1_200
BOX = 15
MARGIN = 24
LEAST_PIXELS = 2.0
LETTER = 6.2
OWN = "headwater.pipeline."


def stacks(recording: Path, thread: str = "") -> Counter[Stack]:
    """How often each stack was sampled, outermost method first, in threads whose name has the word."""
    command: list[str | Path] = [
        _jfr(),
        "print",
        "--json",
        "--stack-depth",
        "64",
        "--events",
        "jdk.ExecutionSample",
        recording,
    ]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    found: Counter[Stack] = Counter()
    for event in msgspec.json.decode(printed)["recording"]["events"]:
        values = event["values"]
        if thread in ((values["sampledThread"] or {}).get("javaName") or ""):
            found[tuple(_names(values["stackTrace"]))] += 1
    return found


def draw(samples: Counter[Stack], title: str) -> str:
    """The flame graph as SVG."""
    root = _tree(samples)
    total = max(1, root["count"])
    boxes = list(_boxes(root, 0.0, WIDTH / total, 0))
    height = (max((level for _, _, _, level, _ in boxes), default=0) + 1) * BOX + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="monospace" font-size="10">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="6" y="16" font-size="12">{escape(title)}</text>',
    ]
    for left, width, name, level, count in boxes:
        top = height - MARGIN - (level + 1) * BOX
        label = f"{name} {100 * count / total:.1f} %"
        room = int((width - 4) / LETTER)
        shown = _short(name)[:room] if room > 2 else ""
        parts.append(
            f'<g><title>{escape(label)}</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" '
            f"height={quoteattr(str(BOX - 1))} fill={quoteattr(_colour(name))}/>"
            + (f'<text x="{left + 2:.1f}" y="{top + 10}">{escape(shown)}</text>' if shown else "")
            + "</g>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def top(samples: Counter[Stack], count: int) -> str:
    """The methods with the most samples of their own, and with most in all, as parts of all samples."""
    own: Counter[str] = Counter()
    below: Counter[str] = Counter()
    for stack, times in samples.items():
        own[stack[-1]] += times
        for name in set(stack):
            below[name] += times
    total = max(1, samples.total())
    lines = []
    for title, counted in (("itself", own), ("with what it calls", below)):
        lines.append(f"--- {title}, of {total:,} samples")
        lines += [f"{100 * times / total:5.1f} %  {name}" for name, times in counted.most_common(count)]
    return "\n".join(lines)


def _jfr() -> str:
    home = os.environ.get("JAVA_HOME")
    if not home:
        from headwater.pipeline.spark.java_runtime import find_java

        home = find_java().home
    return str(Path(home, "bin", "jfr"))


def _names(trace: Any) -> Iterator[str]:
    frames = (trace or {}).get("frames") or []
    for frame in reversed(frames):
        method = frame["method"]
        name = f"{method['type']['name'].replace('/', '.')}.{method['name']}"
        # numbers of generated classes and lambdas differ from run to run
        yield re.sub(r"\$\$Lambda[^.]*", "$lambda", re.sub(r"(GeneratedClass\$\w+?)\d*(?=\.)", r"\1", name))


def _tree(samples: Counter[Stack]) -> dict[str, Any]:
    root: dict[str, Any] = {"name": "all", "count": 0, "children": {}}
    for stack, times in samples.items():
        node = root
        node["count"] += times
        for name in stack:
            node = node["children"].setdefault(name, {"name": name, "count": 0, "children": {}})
            node["count"] += times
    return root


def _boxes(
    node: dict[str, Any], left: float, scale: float, level: int
) -> Iterator[tuple[float, float, str, int, int]]:
    width = node["count"] * scale
    if width < LEAST_PIXELS:
        return
    yield left, width, node["name"], level, node["count"]
    for child in sorted(node["children"].values(), key=lambda each: str(each["name"])):
        yield from _boxes(child, left, scale, level + 1)
        left += child["count"] * scale


def _short(name: str) -> str:
    return ".".join(name.split(".")[-2:])


def _colour(name: str) -> str:
    if name.startswith(OWN):
        return "#f4a259"
    if "parquet" in name or "snappy" in name:
        return "#8cb9d9"
    if name.startswith("com.fasterxml"):
        return "#f2d16b"
    return "#d9d4cc" if name.startswith(("java", "jdk", "sun")) else "#b9cfa4"


def main(arguments: Iterable[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--thread", default="Executor task", metavar="WORD", help="in the threads' names")
    parser.add_argument("--title", default="")
    parser.add_argument("--top", type=int, default=0, metavar="N")
    options = parser.parse_args(list(arguments))
    samples = stacks(options.recording, options.thread)
    options.picture.write_text(draw(samples, options.title or options.recording.stem), encoding="utf-8")
    print(f"{samples.total():,} samples, {options.picture.stat().st_size:,} bytes: {options.picture}")
    if options.top:
        print(top(samples, options.top))


if __name__ == "__main__":
    main(sys.argv[1:])
