"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from headwater import settings as settings_module
from headwater.settings import Settings

VERBOSE = "headwater.verbose"


def is_verbose(ctx: click.Context) -> bool:
    """Whether `-v` was typed."""
    return bool(ctx.meta.get(VERBOSE))


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-c` to the command and pass the loaded settings as its argument `settings`.

    `-c` and `-v` are accepted before the command and after it.
    """

    @click.option("-v", "--verbose", is_flag=True, hidden=True)
    @click.option("-c", "--config", metavar="FILE", help="Configuration; see `headwater --help`.")
    @click.pass_context
    @functools.wraps(function)
    def wrapper(ctx: click.Context, /, *args: Any, config: str | None, verbose: bool, **kwargs: Any) -> Any:
        if verbose:
            ctx.meta[VERBOSE] = True
        root = ctx.find_root()
        root.obj = chosen = config or root.obj  # hints of errors repeat it
        settings = settings_module.load(chosen)
        if is_verbose(ctx):
            settings = msgspec.structs.replace(settings, log_level="debug")
        return function(*args, settings=settings, **kwargs)

    return wrapper


def with_master(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--master`, which replaces `pipeline.master`; the decorator stands below `with_settings`."""

    @click.option("--master", metavar="URL", help="Spark's master, such as spark://host:7077.")
    @functools.wraps(function)
    def wrapper(*args: Any, settings: Settings, master: str | None, **kwargs: Any) -> Any:
        if master:
            pipeline = msgspec.structs.replace(settings.pipeline, master=master)
            settings = msgspec.structs.replace(settings, pipeline=pipeline)
        return function(*args, settings=settings, **kwargs)

    return wrapper


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def log_folder(settings: Settings) -> Path:
    """The folder of the log."""
    return Path(settings.data_dir) / "log"


_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """`30s`, `5m`, `1.5h`, `7d`; a number alone is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float | int):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", str(value).strip())
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is not a time such as 30s, 5m, 1h or 7d.", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
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
