"""Loads the classes that entry points name; the built-in ones are entry points too.

    load("headwater.outlets", "http", Outlet, what="outlet of the type")     one, by its name
    load_all("headwater.lineage")                                            all of a group

`load` raises if the named extension is unusable, because the user chose it. `load_all` collects the errors
and returns the rest.
"""

from __future__ import annotations

import difflib
import functools
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from headwater.errors import ExtensionError
from headwater.system.installation import package_command

T = TypeVar("T")


def load(group: str, name: str, base: type[T], *, what: str, install: str = "") -> type[T]:
    """Return the class of this name, a subclass of `base` (or with its methods, if it is a protocol).

    Raises ExtensionError, in which `what` names the kind of extension and `install` is the command that
    installs what the built-in ones need.
    """
    found = _entries(group)
    if name not in found:
        close = difflib.get_close_matches(name, found, n=1)
        guess = f"Did you mean `{close[0]}`? " if close else ""
        raise ExtensionError(
            f"there is no {what} `{name}`.",
            hint=f"{guess}Installed are {', '.join(sorted(found))}; others come as entry points of {group}.",
        )
    loaded = _import(found[name], what, install)
    entry = found[name][0]
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise ExtensionError(
            f"the {what} `{name}` ({entry.value}) breaks the contract of "
            f"{base.__module__}.{base.__qualname__}.",
            hint=f"Make it a subclass with all of its methods, or run `{_uninstall(entry)}`.",
        )
    return loaded


def load_all(group: str) -> tuple[dict[str, Any], list[ExtensionError]]:
    """Return the objects of the group's entry points, sorted by name, and the errors of the unusable ones."""
    loaded: dict[str, Any] = {}
    failures: list[ExtensionError] = []
    for name, entries in sorted(_entries(group).items()):
        try:
            loaded[name] = _import(entries, f"entry of {group}", "")
        except ExtensionError as error:
            failures.append(error)
    return loaded, failures


def _entries(group: str) -> dict[str, list[EntryPoint]]:
    """Return the entry points by name; several if packages use the same name."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in _installed(group, tuple(sys.path)):
        same = found.setdefault(entry.name, [])
        if entry.value not in (other.value for other in same):  # the same one, installed twice
            same.append(entry)
    return found


@functools.cache
def _installed(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of all packages on the path; to read them takes 20 ms."""
    del path  # part of the key alone
    return tuple(entry_points(group=group))


def _import(entries: list[EntryPoint], what: str, install: str) -> Any:
    entry = entries[0]
    if len(entries) > 1:  # which comes first depends on the order of the path
        packages = " and ".join(sorted(f"the package {_package(each)} ({each.value})" for each in entries))
        others = sorted({_uninstall(each) for each in entries if not _is_ours(each)})
        raise ExtensionError(
            f"the {what} `{entry.name}` is defined by {packages}.", hint=f"Run `{'` or `'.join(others)}`."
        )
    try:
        return entry.load()
    except Exception as error:
        repair = package_command("install --force-reinstall", _package(entry))
        hint = f"Run `{repair}`, or `{_uninstall(entry)}`."
        if _is_ours(entry):
            hint = f"Run `{install or repair}`."
        raise ExtensionError(
            f"the {what} `{entry.name}` ({entry.value}) cannot be imported: {type(error).__name__}: {error}.",
            hint=hint,
        ) from error


def _is_ours(entry: EntryPoint) -> bool:
    return entry.value.startswith("headwater.")


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module.partition(".")[0]


def _uninstall(entry: EntryPoint) -> str:
    return package_command("uninstall", _package(entry))
