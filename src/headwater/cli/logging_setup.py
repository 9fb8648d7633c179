"""The lines that the server prints on stderr: text for people, JSON for collectors."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

from headwater.settings import Settings

__all__ = ["JsonLines", "TextLines", "print_lines"]


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO headwater.log.queue.log: text`."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One object a line: `at`, `level`, `logger`, `text`, and `error` where there is a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def print_lines(settings: Settings) -> None:
    """Send all lines from `log_level` up to stderr in the form of `log_format`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    for noisy in ("httpx2", "httpcore2"):
        # a line per request says nothing that the metrics do not say better
        logging.getLogger(noisy).setLevel(logging.WARNING)
