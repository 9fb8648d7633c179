"""From a YAML text to the tree of settings, with all problems told at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from headwater.errors import SettingsError
from headwater.settings.contradictions import contradictions
from headwater.settings.pipeline import DestinationSettings
from headwater.settings.problems import problems_of
from headwater.settings.sidecar import OutletSettings
from headwater.settings.tree import Settings

__all__ = ["convert", "load", "parse"]

S = TypeVar("S", bound=msgspec.Struct)


def load(path: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of `path`, else of $HEADWATER_CONFIG, else of ./headwater.yml, else the defaults."""
    chosen = (
        path
        or environ.get("HEADWATER_CONFIG")
        or ("headwater.yml" if Path("headwater.yml").exists() else None)
    )
    if chosen is None:
        return Settings()
    try:
        text = Path(chosen).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"cannot be read: {error}"], source=str(chosen)) from None
    return parse(text, environ, source=str(chosen))


def parse(text: str, environ: Mapping[str, str] = os.environ, *, source: str = "settings") -> Settings:
    """The settings that a YAML text describes; all problems are raised together as one SettingsError."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError([f"is not YAML: {error}"], source=source) from None
    raw = {} if raw is None else raw
    problems: list[str] = []
    if not isinstance(raw, dict):
        raise SettingsError([f"must be a mapping, not {type(raw).__name__}"], source=source)
    raw = _interpolate(_without_empty(raw, Settings), environ, "", problems)
    for section, kind in (("outlets", OutletSettings), ("destinations", DestinationSettings)):
        if isinstance(raw.get(section), list):
            raw[section] = [_split_options(item, kind) for item in raw[section]]
    problems += problems_of(raw, Settings, "")
    if problems:
        raise SettingsError(problems, source=source)
    settings = _convert(raw, Settings, source)
    problems = list(contradictions(settings))
    if problems:
        raise SettingsError(problems, source=source)
    return settings


def convert(raw: Mapping[str, Any], kind: type[S], *, source: str) -> S:
    """Turn an extension's own settings into its Struct, with the same checks as for the whole tree."""
    if problems := list(problems_of(dict(raw), kind, "")):
        raise SettingsError(problems, source=source)
    return _convert(dict(raw), kind, source)


def _convert(raw: dict[str, Any], kind: type[S], source: str) -> S:
    try:
        # not strict: an interpolated `${env.PORT}` is text and still has to become a number
        return msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError([re.sub(r"`\$\.?(.*?)`", r"`\1`", str(error))], source=source) from None


def _without_empty(raw: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Without the sections whose lines are all commented out: read as null, meant as the defaults."""
    sections = {
        field.encode_name: field.default
        for field in msgspec.structs.fields(kind)
        if isinstance(field.default, msgspec.Struct | tuple)
    }
    found = {key: value for key, value in raw.items() if value is not None or key not in sections}
    for key, default in sections.items():
        if isinstance(default, msgspec.Struct) and isinstance(found.get(key), dict):
            found[key] = _without_empty(found[key], type(default))
    return found


def _split_options(raw: Any, kind: type[msgspec.Struct]) -> Any:
    """An outlet or a destination with the keys of its type moved to `options`."""
    if not isinstance(raw, dict):
        return raw
    known = {field.encode_name for field in msgspec.structs.fields(kind)} - {"options"}
    own = {key: value for key, value in raw.items() if key not in known and key != "options"}
    return {key: raw[key] for key in raw if key in known} | {"options": own | (raw.get("options") or {})}


_REFERENCE = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)(?:\|([^}]*))?\}")


def _interpolate(value: Any, environ: Mapping[str, str], path: str, problems: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolate(item, environ, f"{path}.{key}", problems) for key, item in value.items()}
    if isinstance(value, list):
        return [_interpolate(item, environ, f"{path}[{i}]", problems) for i, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match.groups()
        if name in environ:
            return environ[name]
        if default is None:
            problems.append(
                f"`{path.lstrip('.')}` needs the environment variable {name}: set it, "
                f"or give a default as ${{env.{name}|default}}"
            )
        return default or ""

    return _REFERENCE.sub(replace, value)
