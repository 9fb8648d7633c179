"""What several commands share: the configuration, and the choice of JSON."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from headwater import settings as settings_module
from headwater.settings import Settings


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-c` to the command and pass the loaded settings as its argument `settings`.

    `-c` is accepted before the command and after it.
    """

    @click.option("-c", "--config", metavar="FILE", help="Configuration; see `headwater --help`.")
    @click.pass_context
    @functools.wraps(function)
    def wrapper(ctx: click.Context, /, *args: Any, config: str | None, **kwargs: Any) -> Any:
        chosen = config or ctx.find_root().obj
        return function(*args, settings=settings_module.load(chosen), **kwargs)

    return wrapper


def with_master(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command `--master`, which takes the place of `pipeline.master`; below `with_settings`."""

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
