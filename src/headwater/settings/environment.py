"""Settings from environment variables: `HEADWATER_GATEWAY__PORT=8750` is `gateway.port`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headwater.formats.yaml_text import BadYaml, load_yaml
from headwater.settings.describe import describe
from headwater.settings.settings import Settings

PREFIX = "HEADWATER_"
SEPARATOR = "__"  # one `_` is part of names; and Kubernetes sets HEADWATER_GATEWAY_PORT for a service


class Variable(msgspec.Struct, frozen=True):
    """An environment variable for one setting."""

    name: str
    path: tuple[str, ...]
    is_text: bool
    """Otherwise its value is YAML, such as a list."""


def variables() -> dict[str, Variable]:
    """All of them, by name."""
    return {each.name: each for each in _variables(Settings, ())}


def _variables(struct: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[Variable]:
    for field in describe(struct):
        here = (*path, field.name)
        if field.struct is not None and not field.is_list:
            yield from _variables(field.struct, here)
        is_text = not (field.is_list or field.struct is not None or field.kind == "section")
        yield Variable(PREFIX + SEPARATOR.join(here).upper(), here, is_text)


def overlay(raw: dict[str, Any], environ: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Put the values of variables into the tree; return the variable of each path that one has set.

    A variable whose name has the form of a setting's, but is none, is a line in `problems`.
    """
    known = variables()
    sections = {name.partition(SEPARATOR)[0] for name in known if SEPARATOR in name}
    found: dict[str, str] = {}
    # a section before the settings in it
    for name in sorted(each for each in environ if each.startswith(PREFIX)):
        if (variable := known.get(name)) is None:
            if SEPARATOR in name and name.partition(SEPARATOR)[0] in sections:
                close = difflib.get_close_matches(name, known, n=1)
                guess = f"; did you mean {close[0]}?" if close else ""
                problems.append(f"the environment variable {name} names no setting{guess}")
            continue
        path = ".".join(variable.path)
        # `${` of a value is text: it has been through a shell already
        value: Any = environ[name].replace("${", "$${")
        if not variable.is_text:
            try:
                value = load_yaml(value)
            except BadYaml as error:
                problems += [f"`{path}` (from {name}): {problem}" for problem in error.problems]
                continue
        _put(raw, variable.path, value)
        found[path] = name
    return found


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *sections, last = path
    for section in sections:
        inner = tree.get(section)
        if not isinstance(inner, dict):  # missing, or all of its lines are commented out
            inner = tree[section] = {}
        tree = inner
    tree[last] = value
