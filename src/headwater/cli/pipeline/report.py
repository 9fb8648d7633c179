"""Prints the report of a batch cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headwater.cli.output import format_table

if TYPE_CHECKING:
    from headwater.pipeline.load_report import Report


def print_report(report: Report) -> None:
    """Print loads by destination and table, the counts of each destination, and the errors."""
    pairs: dict[tuple[str, str], list[int]] = {}
    counts: dict[str, list[int]] = {}
    for file in report.files:
        for destination in file.destinations:
            count = counts.setdefault(destination.destination, [0, 0, 0, 0])
            mine = (destination.events, destination.rows, destination.skipped, destination.rejected)
            counts[destination.destination] = [total + each for total, each in zip(count, mine, strict=True)]
            for pair in destination.pairs:
                row = pairs.setdefault((destination.destination, pair.table), [0, 0, 0, 0])
                added = (not pair.skipped and not pair.error, pair.rows * (not pair.skipped), pair.unmapped)
                for i, each in enumerate((*added, bool(pair.error))):
                    row[i] += each
    if pairs:
        head = ("destination", "table", "loads", "rows", "unmapped values", "not loaded")
        click.echo(format_table(head, [(*key, *row) for key, row in sorted(pairs.items())]))
    for id, (events, rows, skipped, rejected) in counts.items():
        click.echo(f"{id}: {events:,} events = {rows:,} rows + {skipped:,} skipped + {rejected:,} rejected")
    archived = sum(file.archived for file in report.files)
    click.echo(f"{archived:,} of {len(report.files):,} file(s) done")
    for error in report.errors:
        click.secho(f"not loaded: {error}", fg="red", err=True)
