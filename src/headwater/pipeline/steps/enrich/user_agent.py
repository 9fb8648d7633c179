"""`user_agent_parse`: the browser, system and device that a user agent's text names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from ua_parser import Parser
from ua_parser.loaders import load_builtins

from headwater.destinations.column_types import Kind
from headwater.errors import ExtensionError
from headwater.pipeline.steps.enrich.base import Enricher, Found
from headwater.settings import PipelineSettings
from headwater.system.installation import install_command

_LONGEST = 2_048
"""Characters that are parsed: a browser sends a few hundred, and longer texts only cost time (G8)."""


class UserAgentParse(Enricher):
    """Families and versions, as far as they are known."""

    fields: ClassVar[Mapping[str, Kind]] = {
        "ua_family": Kind.STRING,
        "ua_version": Kind.STRING,
        "os_family": Kind.STRING,
        "os_version": Kind.STRING,
        "device_family": Kind.STRING,
        "device_brand": Kind.STRING,
        "device_model": Kind.STRING,
        "bot": Kind.BOOL,
    }

    def __init__(self, settings: PipelineSettings) -> None:
        pass

    def open(self) -> None:
        _parser()

    def lookup(self, values: Sequence[str]) -> list[Found]:
        return [_parsed(value[:_LONGEST]) for value in values]


@cache
def _parser() -> Parser:
    """The one parser of the process: its patterns take half a second and tens of megabytes."""
    try:
        from ua_parser.regex import Resolver
    except ImportError as error:
        # the parser in Python is sixty times slower, and would be taken for a fault of ours
        raise ExtensionError(
            f"`user_agent_parse` needs the Rust part of ua-parser: {error}.",
            hint=f"Run `{install_command('pipeline')}`.",
        ) from error
    return Parser(Resolver(load_builtins()))


def _parsed(value: str) -> Found:
    result = _parser().parse(value)
    found: dict[str, Any] = {}
    if agent := result.user_agent:
        found |= {"ua_family": agent.family, "ua_version": _version(agent)}
    if system := result.os:
        found |= {"os_family": system.family, "os_version": _version(system)}
    if device := result.device:
        found |= {
            "device_family": device.family,
            "device_brand": device.brand,
            "device_model": device.model,
            "bot": device.family == "Spider" or None,
        }
    return {name: value for name, value in found.items() if value and value != "Other"} or None


def _version(part: Any) -> str:
    return ".".join(number for number in (part.major, part.minor, part.patch, part.patch_minor) if number)
