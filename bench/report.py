"""The report of a benchmark: a table for people, a JSON file for programs."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

__all__ = ["Table", "write_result"]

RESULTS = Path(__file__).parent / "results"  # not under version control


class Table:
    """Rows of text under a head, in columns as wide as they need to be."""

    def __init__(self, *head: str) -> None:
        self._rows: list[tuple[str, ...]] = [head]

    def row(self, *cells: object) -> None:
        self._rows.append(tuple(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells))

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        lines = [
            "  ".join(
                # the first column names the row, the others are figures
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in self._rows
        ]
        lines.insert(1, "-" * len(lines[0]))
        return "\n".join(lines)


def write_result(name: str, figures: object) -> Path:
    """Write bench/results/<name>.json and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    report = {"figures": msgspec.to_builtins(figures), "machine": {"cores": os.cpu_count()}}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
