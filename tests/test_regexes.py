"""Every pattern ends where it says: `$` also matches before a newline at the end of a text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from .sources import modules

# What `re` makes of a pattern: no public module gives the parsed form.
from re import _constants, _parser  # isort: skip

ENDS = {"compile", "match", "search", "fullmatch", "sub", "split", "findall", "finditer"}


def patterns() -> Iterator[tuple[str, str]]:
    """Each pattern of the package, with its place."""
    for module in modules():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of_re = (
                isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in ENDS
            )
            given = (
                node.args[:1] if of_re else [each.value for each in node.keywords if each.arg == "pattern"]
            )
            for pattern in given:
                if text := _text(pattern):
                    yield f"{module.name}:{node.lineno}", text


def _text(node: ast.expr) -> str:
    """The text of a literal; each value in an f-string counts as a letter."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    return ""


def has_loose_end(parsed: object) -> bool:
    if isinstance(parsed, _parser.SubPattern):
        return any(has_loose_end(each) for each in parsed)
    if isinstance(parsed, tuple | list):
        if len(parsed) == 2 and parsed[0] is _constants.AT and parsed[1] is _constants.AT_END:
            return True
        return any(has_loose_end(each) for each in parsed)
    return False


def test_no_pattern_ends_with_a_dollar_when_it_is_parsed() -> None:
    found = list(patterns())
    assert len(found) > 30
    assert [place for place, text in found if has_loose_end(_parser.parse(text))] == []


@pytest.mark.parametrize("text", ["a$", "(a|$)", "(?:x(y$)?)"])
def test_a_dollar_is_found_when_it_is_anywhere_in_a_pattern(text: str) -> None:
    assert has_loose_end(_parser.parse(text))
    assert not has_loose_end(_parser.parse(text.replace("$", r"\Z")))
    assert re.search("a$", "a\n")
