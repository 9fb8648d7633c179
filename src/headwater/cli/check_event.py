"""`headwater check --event`: the table, columns, types and values that an event would become."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from headwater.cli.tables import format_table, json_text
from headwater.clock import SystemClock
from headwater.errors import HeadwaterError, SettingsError
from headwater.gateway.context import Context
from headwater.gateway.tokens import Sender, Token
from headwater.settings import Settings

if TYPE_CHECKING:
    from headwater.pipeline.preview import Preview

__all__ = ["show_event"]

VALUE_WIDTH = 60


def show_event(settings: Settings, body: bytes, as_json: bool) -> bool:
    """Print what each destination would get; whether each of them could take it. Nothing is stored."""
    if not settings.destinations:
        raise SettingsError(["`destinations` is empty; there is nothing that the event could become"])
    from headwater.pipeline.preview import preview
    from headwater.pipeline.spark import start

    logging.getLogger("py4j").setLevel(logging.WARNING)
    event = _enriched(settings, body)
    click.echo("starting Spark ...", err=True)
    spark = start(settings.pipeline, log_file=Path(settings.data_dir) / "spark.log")
    found = preview(settings, spark, event)
    if as_json:
        click.echo(json_text(found))
    else:
        for each in found:
            _print(each)
    return not any(each.reason for each in found)


def _enriched(settings: Settings, body: bytes) -> bytes:
    """What the gateway would store; an event from a file of ours is that already."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HeadwaterError(
            f"This is not an event: {error}.", hint="Give a file with one JSON object in it."
        ) from None
    if "_timestamp" in fields or not settings.tokens:
        return body
    token = settings.tokens[0]
    is_server = not token.client_secret
    sender = Sender(Token(token, SystemClock()), is_server, token.id if is_server else token.client_secret)
    click.echo(
        f"as if it came in by the {'server' if is_server else 'browser'} of token {token.id}", err=True
    )
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    return Context(sender, "127.0.0.1", "headwater check", stamp).enrich(body)


def _print(found: Preview) -> None:
    click.echo()
    if found.reason:
        click.echo(f"{found.destination}: rejected: {found.reason}")
        return
    if not found.table:
        click.echo(f"{found.destination}: skipped, since its template gives no table")
        return
    click.echo(f"{found.destination}: table {found.table}")
    rows = [(column.name, column.kind, column.sql_type, _short(column.value)) for column in found.columns]
    click.echo(format_table(("column", "kind", "type", "value"), rows))
    if found.unmapped:
        click.echo(f"_unmapped_data: {_short(found.unmapped)}")


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= VALUE_WIDTH else text[: VALUE_WIDTH - 1] + "…"
