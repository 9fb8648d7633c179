"""Logging of the commands that run until they are stopped, and the files they create."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from types import TracebackType

import click

from headwater.cli.output import echo
from headwater.formats.printable import printable_block, printable_line
from headwater.settings import Settings


def configure_logging(settings: Settings) -> None:
    """Log to stderr from `log_level` up, in the form of `log_format`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    if settings.log_format == "json":
        sys.excepthook = _log_uncaught
    for noisy in ("httpx2", "httpcore2", "py4j"):
        # They log every request and every connection to the JVM; the metrics count the same.
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    logging.getLogger("headwater").critical("%s: %s", kind.__name__, error, exc_info=(kind, error, traceback))


def report_error(text: str, hint: str = "") -> None:
    """Print the error that ends a command, as a line of the log where that is JSON."""
    if any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers):
        logging.getLogger("headwater").error("%s", f"{text} {hint}".strip())
        return
    click.secho(f"error: {printable_block(text)}", fg="red", err=True)
    if hint:
        echo(hint, err=True)


def keep_files_private() -> None:
    """Create files as 0600 and folders as 0700 from now on, whatever the user's umask allows (G12)."""
    os.umask(0o077)


def announce(settings: Settings, text: str) -> None:
    """Print a line that people wait for to stderr, whatever `log_level` is, in the form of `log_format`."""
    if settings.log_format == "json":
        record = {"msg": text, "levelname": "INFO", "name": "headwater"}
        text = JsonLines().format(logging.makeLogRecord(record))
    echo(text, err=True)


READY = "ready: "


def announce_ready(settings: Settings, text: str) -> None:
    """Announce that a part can do its work; `headwater up` waits for this line of each part."""
    announce(settings, READY + text)


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO headwater.log.queue.log: text`, then a traceback, which is indented."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {record.name}: {printable_line(record.getMessage())}"
        if not record.exc_info:
            return line
        # Indented, so that an error's text with line breaks cannot pass for a line of the log.
        return "\n  ".join((line, *printable_block(self.formatException(record.exc_info)).split("\n")))


class JsonLines(logging.Formatter):
    """One object per line: `at`, `level`, `logger`, `text`, and, with a traceback, `error`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return printable_line(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
