"""Reads settings from YAML and the environment: `${env.X}`, units, all problems at once.

An unknown key is refused with the nearest known one.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from headwater.errors import SettingsError
from headwater.formats.yaml_text import BadYaml, load_yaml
from headwater.settings.consistency import inconsistencies
from headwater.settings.environment import overlay
from headwater.settings.relative_paths import OptionsOfFile, joined, resolved
from headwater.settings.settings import DestinationSettings, OutletSettings, Settings
from headwater.settings.units import examples, in_its_unit, unit_of

LARGEST = 2**63 - 1  # of a whole number: files and databases store no larger one


def problems_of(raw: Any, kind: Any, path: str) -> Iterator[str]:
    """Yield a line for each unknown key, with the nearest known one, and for each bad value.

    The class attribute `removed` of a section says, by key, what to do instead of setting a former key.
    msgspec stops at the first problem; a user wants to see all of them.
    """
    struct = _struct(kind)
    if struct is None or not isinstance(raw, dict):
        items = (
            get_args(_bare(kind))[:1] if get_origin(_bare(kind)) is tuple and isinstance(raw, list) else ()
        )
        if items and _struct(items[0]) is not None:
            for i, item in enumerate(raw):
                yield from problems_of(item, items[0], f"{path}[{i}]")
        else:
            yield from _mismatch(raw, kind, path)
        return
    by_attribute = typing.get_type_hints(struct, include_extras=True)
    fields = msgspec.structs.fields(struct)
    hints = {field.encode_name: by_attribute[field.name] for field in fields}
    prefix = f"{path}." if path else ""
    for key, value in raw.items():
        if key in hints:
            yield from problems_of(value, hints[key], f"{prefix}{key}")
            continue
        if key in (removed := getattr(struct, "removed", {})):
            yield f"`{prefix}{key}` is no longer a setting. Remove it: {removed[key]}"
            continue
        close = difflib.get_close_matches(str(key), hints, n=1)
        guess = f"did you mean `{prefix}{close[0]}`?" if close else f"known are {', '.join(sorted(hints))}."
        yield f"`{prefix}{key}` is not a setting; {guess}"
    for field in fields:
        if field.required and field.encode_name not in raw:
            yield f"`{prefix}{field.encode_name}` is missing"


def _mismatch(raw: Any, kind: Any, path: str) -> Iterator[str]:
    try:
        found = msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError as error:
        text, _, inner = str(error).partition(" - at ")
        if isinstance(raw, str) and unit_of(path) and _is_number(kind):
            text = f"expected a number of {unit_of(path)}, or text such as {examples(path)}"
        yield f"`{path}{inner.strip('`').removeprefix('$')}`: {text[:1].lower()}{text[1:]}"
    else:
        if isinstance(found, int) and _bare(kind) is not Any and abs(found) > LARGEST:
            yield f"`{path}`: is too large a number"
        yield from _without_end(found, path)


def _without_end(value: Any, path: str) -> Iterator[str]:
    """Yield a line for each number that is infinite or not a number."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"`{path}`: expected a finite number, got `{value}`"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _without_end(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _without_end(item, f"{path}[{i}]")


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _struct(kind: Any) -> type[msgspec.Struct] | None:
    bare = _bare(kind)
    options = get_args(bare) if get_origin(bare) in (types.UnionType, typing.Union) else (bare,)
    for option in options:
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return option
    return None


S = TypeVar("S", bound=msgspec.Struct)


def load(path: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of `path`, $HEADWATER_CONFIG or ./headwater.yml, else the defaults."""
    chosen = (
        path
        or environ.get("HEADWATER_CONFIG")
        or ("headwater.yml" if Path("headwater.yml").exists() else None)
    )
    if chosen is None:
        return from_tree({}, environ, source="the environment", with_variables=True)
    try:
        text = Path(chosen).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"cannot be read: {error}"], source=str(chosen)) from None
    folder = Path(chosen).parent
    try:
        folder = Path() if folder.samefile(".") else folder
    except OSError:  # the working directory is gone
        pass
    tree = _tree(text, str(chosen))
    return from_tree(tree, environ, source=str(chosen), with_variables=True, folder=folder)


def parse(text: str, environ: Mapping[str, str] = os.environ, *, source: str = "settings") -> Settings:
    """Return the settings of a YAML text; SettingsError with all problems if there are any."""
    return from_tree(_tree(text, source), environ, source=source)


def _tree(text: str, source: str) -> Any:
    try:
        raw = load_yaml(text)
    except BadYaml as error:
        raise SettingsError(error.problems, source=source) from None
    return {} if raw is None else raw


def from_tree(
    raw: Any,
    environ: Mapping[str, str] = os.environ,
    *,
    source: str = "settings",
    with_variables: bool = False,
    folder: Path = Path(),
) -> Settings:
    """Return the settings of a tree as YAML has it; SettingsError with all problems if there are any.

    With `with_variables`, environment variables named after settings replace what the tree has. Relative
    paths of the tree are relative to `folder`, those of variables to the working directory.
    """
    problems: list[str] = []
    if not isinstance(raw, dict):
        raise SettingsError([f"must be a mapping, not {type(raw).__name__}"], source=source)
    raw = _without_empty(raw, Settings)
    named = overlay(raw, environ, problems) if with_variables else {}
    raw = _interpolate(raw, environ, "", problems)
    for section, kind in (("outlets", OutletSettings), ("destinations", DestinationSettings)):
        if isinstance(raw.get(section), list):
            raw[section] = [_split_options(item, kind) for item in raw[section]]
    raw = _in_units(raw, Settings)
    problems += problems_of(raw, Settings, "")
    if "data_dir" not in named:
        problems += _left_behind(raw.setdefault("data_dir", Settings().data_dir), folder)
    raw = resolved(raw, Settings, folder, but=named)
    if problems:
        raise SettingsError([_with_variable(problem, named) for problem in problems], source=source)
    settings = _convert(raw, Settings, source)
    for section in ("outlets", "destinations"):
        if section not in named:
            settings = msgspec.structs.replace(
                settings, **{section: _of_file(getattr(settings, section), folder)}
            )
    problems = list(inconsistencies(settings))
    if problems:
        raise SettingsError(problems, source=source)
    return settings


def convert(raw: Mapping[str, Any], kind: type[S], *, source: str) -> S:
    """Convert an extension's settings to its Struct, with the same checks as for the whole tree."""
    tree = _in_units(dict(raw), kind)
    if isinstance(raw, OptionsOfFile):
        tree = resolved(tree, kind, raw.folder)
    if problems := list(problems_of(tree, kind, "")):
        raise SettingsError(problems, source=source)
    return _convert(tree, kind, source)


def _left_behind(data_dir: Any, folder: Path) -> Iterator[str]:
    """Yield a line if the data is where an earlier release put it: in the working directory."""
    if not isinstance(data_dir, str):
        return
    place = joined(folder, data_dir)
    if place != data_dir and os.path.exists(data_dir) and not os.path.exists(place):
        here = Path(data_dir).absolute()
        yield (
            f"`data_dir` is relative to this file: {place} does not exist, but {here} does. "
            "Move that folder, or write its whole path"
        )


def _of_file(sections: tuple[Any, ...], folder: Path) -> tuple[Any, ...]:
    """The outlets or destinations, with options that know the folder of their file."""
    return tuple(
        msgspec.structs.replace(each, options=OptionsOfFile(each.options, folder)) for each in sections
    )


def _with_variable(problem: str, named: Mapping[str, str]) -> str:
    """The line, with the environment variable that its setting came from."""
    path = problem.split("`", 2)[1] if problem.startswith("`") else ""
    for setting, variable in named.items():
        if path == setting or path.startswith((f"{setting}.", f"{setting}[")):
            return f"{problem} (from {variable})"
    return problem


def _in_units(raw: Any, kind: Any) -> Any:
    """The tree with sizes and times as numbers: `4GiB` of a setting in bytes, `24h` of one in hours."""
    if isinstance(raw, list) and get_origin(_bare(kind)) is tuple:
        return [_in_units(item, get_args(_bare(kind))[0]) for item in raw]
    if (struct := _struct(kind)) is None or not isinstance(raw, dict):
        return raw
    by_attribute = typing.get_type_hints(struct, include_extras=True)
    found = dict(raw)
    for field in msgspec.structs.fields(struct):
        name, hint = field.encode_name, by_attribute[field.name]
        if name not in found:
            continue
        value = found[name]
        if isinstance(value, str) and _is_number(hint):
            number = in_its_unit(name, value)
            found[name] = value if number is None else number
        else:
            found[name] = _in_units(value, hint)
    return found


def _is_number(kind: Any) -> bool:
    bare = _bare(kind)
    options = get_args(bare) if get_origin(bare) in (types.UnionType, typing.Union) else (bare,)
    return any(_bare(option) in (int, float) for option in options)


def _convert(raw: dict[str, Any], kind: type[S], source: str) -> S:
    try:
        # not strict: an interpolated `${env.PORT}` is text and still has to become a number
        return msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError([re.sub(r"`\$\.?(.*?)`", r"`\1`", str(error))], source=source) from None


def _without_empty(raw: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Drop sections whose lines are all commented out: YAML reads null, and the defaults are meant."""
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
    """Move the keys of an outlet's or a destination's type to `options`."""
    if not isinstance(raw, dict) or not isinstance(raw.get("options"), dict | None):
        return raw  # `problems_of` reports it
    known = {field.encode_name for field in msgspec.structs.fields(kind)} - {"options"}
    own = {key: value for key, value in raw.items() if key not in known and key != "options"}
    return {key: raw[key] for key in raw if key in known} | {"options": own | (raw.get("options") or {})}


# `$${` is a literal `${`; a `${` that is not closed matches too, and is refused.
_REFERENCE = re.compile(r"\$\$\{|\$\{env\.([A-Za-z_][A-Za-z0-9_]*)(?:\|([^}]*))?\}|\$\{[^}]*\}?")


def _interpolate(value: Any, environ: Mapping[str, str], path: str, problems: list[str]) -> Any:
    if isinstance(value, dict):
        return {
            _clean(str(key), path.lstrip("."), problems): _interpolate(
                item, environ, f"{path}.{key}", problems
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_interpolate(item, environ, f"{path}[{i}]", problems) for i, item in enumerate(value)]
    return _text(value, environ, path.lstrip("."), problems) if isinstance(value, str) else value


def _text(value: str, environ: Mapping[str, str], path: str, problems: list[str]) -> str:
    """The text with the values of its variables; a line in `problems` for each that cannot be had."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match.groups()
        if name is None:
            inner = match[0][2:].rstrip("}")
            problems.append(
                f"`{path}` has `{match[0]}`: write `${{env.{inner}}}` for an environment variable, "
                f"or `$${{` for a `${{` that is meant as text"
            )
        elif name in environ:
            return environ[name]
        elif default is None:
            problems.append(
                f"`{path}` needs the environment variable {name}: set it, "
                f"or give a default as ${{env.{name}|default}}"
            )
        return default or ""

    return _clean(_REFERENCE.sub(replace, value), path, problems)


def _clean(text: str, path: str, problems: list[str]) -> str:
    """The text without what no file name, header or table can have; a line in `problems` if it has any."""
    # half of a surrogate pair, or a byte of the environment that is not UTF-8
    found = text.replace("\0", "?").encode(errors="replace").decode()
    if found != text:
        problems.append(f"`{path}` has a character that cannot be stored: {text!a}")
    return found
