"""Extensions: classes that packages bring by entry points, ours through the same doors as everybody's.

    load("headwater.outlets", "http", Outlet, what="outlet of the type")     one, by its name
    load_all("headwater.lineage")                                            all of a group

Somebody chose the name of the one, so what is wrong with it is an error; nobody chose all of a group, so what
is wrong with one of them is reported and the others are had.
"""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from headwater.errors import ExtensionError

__all__ = ["load", "load_all"]

T = TypeVar("T")


def load(group: str, name: str, base: type[T], *, what: str, install: str = "") -> type[T]:
    """The class of this name in the group, a subclass of `base` (or with its methods, if it is a protocol).

    Raises ExtensionError, which says `what` it was to be. `install` says what to type for ours when an
    import fails, where an extra brings what they need.
    """
    found = _entries(group)
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        guess = f"Did you mean `{near[0]}`? " if near else ""
        raise ExtensionError(
            f"there is no {what} `{name}`.",
            hint=f"{guess}Installed are {', '.join(sorted(found))}; others come as entry points of {group}.",
        )
    loaded = _import(found[name], what, install)
    entry = found[name][0]
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise ExtensionError(
            f"the {what} `{name}` ({entry.value}) does not hold the contract of "
            f"{base.__module__}.{base.__qualname__}.",
            hint=f"Make it a subclass with all of its methods, or remove {_package(entry)}.",
        )
    return loaded


def load_all(group: str) -> tuple[dict[str, Any], list[ExtensionError]]:
    """Whatever the group's entry points name, by name and in the order of names, and what went wrong."""
    loaded: dict[str, Any] = {}
    failures: list[ExtensionError] = []
    for name, entries in sorted(_entries(group).items()):
        try:
            loaded[name] = _import(entries, f"entry of {group}", "")
        except ExtensionError as error:
            failures.append(error)
    return loaded, failures


def _entries(group: str) -> dict[str, list[EntryPoint]]:
    """By name; more than one where packages disagree about what a name means."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        same = found.setdefault(entry.name, [])
        if entry.value not in (other.value for other in same):  # installed twice is no disagreement
            same.append(entry)
    return found


def _import(entries: list[EntryPoint], what: str, install: str) -> Any:
    entry = entries[0]
    if len(entries) > 1:  # which comes first depends on the order of the path
        packages = " and ".join(sorted(f"{_package(each)} ({each.value})" for each in entries))
        raise ExtensionError(
            f"the {what} `{entry.name}` is brought by {packages}.", hint="Remove one of these packages."
        )
    try:
        return entry.load()
    except Exception as error:
        ours = f" (for ours: {install})" if install else ""
        raise ExtensionError(
            f"the {what} `{entry.name}` ({entry.value}) cannot be imported: {type(error).__name__}: {error}.",
            hint=f"Install what it needs{ours}, or remove {_package(entry)}, which brings it.",
        ) from error


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name}" if entry.dist is not None else "its package"
