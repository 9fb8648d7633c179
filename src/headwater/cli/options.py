"""What several commands share: the configuration, and the choice of JSON."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headwater import settings as settings_module
from headwater.errors import HeadwaterError
from headwater.log.rejects import Rejects
from headwater.settings import Settings

__all__ = ["as_json", "log_folder", "open_rejects", "rejects_path", "with_settings"]


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command `-c` and hand it the loaded settings as its argument `settings`.

    `-c` works before the command and after it, since nobody remembers which of the two.
    """

    @click.option("-c", "--config", metavar="FILE", help="Configuration; see `headwater --help`.")
    @click.pass_context
    @functools.wraps(function)
    def wrapper(ctx: click.Context, /, *args: Any, config: str | None, **kwargs: Any) -> Any:
        chosen = config or ctx.find_root().obj
        return function(*args, settings=settings_module.load(chosen), **kwargs)

    return wrapper


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def log_folder(settings: Settings) -> Path:
    """The folder of the log."""
    return Path(settings.data_dir) / "log"


def rejects_path(settings: Settings) -> Path:
    """The file of the rejects."""
    return Path(settings.data_dir) / "rejects.db"


def open_rejects(settings: Settings) -> Rejects:
    """The rejects, beside a running server or without one; a looker never creates the file."""
    path = rejects_path(settings)
    if not path.exists():
        raise HeadwaterError(
            f"{path} does not exist: nothing was ever served from this `data_dir`.",
            hint="Name the server's configuration with -c, or start it with `headwater serve`.",
        )
    return Rejects(path, max_bytes=settings.log.rejects_bytes)
