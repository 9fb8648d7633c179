from __future__ import annotations

import ast
import re

import pytest

from headwater import errors
from headwater.errors import HeadwaterError, LogFull, OutletUnavailable, SettingsError

from .sources import modules


def test_the_text_ends_with_the_hint_when_there_is_one() -> None:
    error = LogFull("The disk of data/log is full.", hint="Free some space.")
    assert str(error) == "The disk of data/log is full. Free some space."
    assert error.text == "The disk of data/log is full."
    assert error.hint == "Free some space."


def test_the_text_stands_alone_when_there_is_no_hint() -> None:
    assert str(HeadwaterError("It failed.")) == "It failed."


def test_settings_error_lists_every_problem_when_there_are_several() -> None:
    error = SettingsError(["`a` is odd", "`b` is missing"], source="headwater.yml")
    assert str(error).splitlines() == ["headwater.yml has 2 problem(s):", "  `a` is odd", "  `b` is missing"]
    assert error.problems == ["`a` is odd", "`b` is missing"]


def test_outlet_unavailable_keeps_the_receivers_wish_when_it_stated_one() -> None:
    assert OutletUnavailable("busy", retry_after_seconds=7).retry_after_seconds == 7
    assert OutletUnavailable("busy").retry_after_seconds is None


@pytest.mark.parametrize(
    ("name", "retryable"),
    [
        ("LogFull", True),
        ("LogUnavailable", True),
        ("OutletUnavailable", True),
        ("LogLocked", False),
        ("LogClosed", False),
        ("SettingsError", False),
        ("EventRefused", False),
    ],
)
def test_an_error_says_whether_a_retry_helps_when_asked(name: str, retryable: bool) -> None:
    assert getattr(errors, name).retryable is retryable


def test_the_drawn_tree_names_every_error_when_it_is_read() -> None:
    tree = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) | {"HeadwaterError"}
    assert tree == error_classes()


def error_classes() -> set[str]:
    """The names of all public classes in the package that derive from HeadwaterError."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"HeadwaterError"}
    while more := {name for name, own in bases.items() if own & found and name not in found}:
        found |= more
    return {name for name in found if not name.startswith("_")}
