"""`headwater pipeline backfill`: loads archived events into a destination that was added later."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from headwater.cli.options import with_master, with_settings
from headwater.cli.output import progress
from headwater.cli.pipeline.report import print_report
from headwater.cli.pipeline.spark import start_spark
from headwater.cli.process import configure_logging
from headwater.errors import HeadwaterError
from headwater.settings import Settings


class Moment(click.ParamType[datetime]):
    """`2026-11-16` or `2026-11-16T10:30:00Z`; UTC if there is no zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is not a time such as 2026-11-16 or 2026-11-16T10:30:00Z.", param, ctx)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found


@click.command("backfill")
@click.option("--destination", "id", required=True, help="Id of the destination to load into.")
@click.option("--since", type=Moment(), required=True, help="Load events from this time on.")
@click.option(
    "--until", type=Moment(), help="... and before this; default: when its own queue began, or now."
)
@click.option("--from", "origin", help="`incoming`, or the stream destination whose archive to load.")
@with_settings
@with_master
@click.pass_context
def backfill_command(
    ctx: click.Context,
    settings: Settings,
    id: str,
    since: datetime,
    until: datetime | None,
    origin: str | None,
) -> None:
    """Load archived events into a destination that was added later.

    Times are those of the events' `_timestamp`. A file that is already loaded into the destination is
    skipped, also by a second backfill with the same times. Exit code 1 if a file could not be loaded.
    """
    configure_logging(settings)
    destination = next((each for each in settings.destinations if each.id == id), None)
    if destination is None:
        known = ", ".join(each.id for each in settings.destinations) or "none"
        raise HeadwaterError(f"No destination has the id {id}.", hint=f"Known: {known}.")
    from headwater.pipeline.batch.backfill import backfill, choose, default_until

    until = until or default_until(settings, destination)
    files = choose(settings, destination, since, origin or "")
    if not files:
        click.echo("the archive has no events of that time")
        return
    spark = start_spark(settings)
    is_complete = True
    with progress("loading") as update:
        for report in backfill(settings, spark, destination, files, since, until, update):
            print_report(report)
            is_complete = is_complete and report.is_complete
    ctx.exit(0 if is_complete else 1)
