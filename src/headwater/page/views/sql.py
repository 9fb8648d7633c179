"""SQL as tokens with a kind each, on several lines if the producer sent it on one.

The tokens joined are the text, except for whitespace: nothing of a query is lost or changed. Each character
is read once, whatever the text is (G12).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?)"
    r"|(?P<text>'(?:[^']|'')*'?)"
    r'|(?P<name>"(?:[^"]|"")*"?|`[^`]*`?)'
    r"|(?P<number>\b\d+(?:\.\d+)?\b)"
    r"|(?P<word>[A-Za-z_][A-Za-z_0-9$]*)"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
KEYWORDS = frozenset(
    """
    add all alter analyze and anti any array as asc between by case cast cluster copy create cross
    current database date default delete desc describe distinct drop else end escape except exists
    explain external false fetch filter first following for from full function group grouping having
    if ilike in inner insert intersect interval into is join last lateral left like limit location
    map matched materialized merge minus natural not null nulls offset on or order outer over
    overwrite partition preceding primary qualify range recursive references replace returning right
    rollup row rows select semi set sets show struct table tablesample then timestamp to top trigger
    true truncate unbounded union unique unnest unpivot update using values view when where window
    with
    """.split()  # noqa: SIM905
)
# Words before which a line begins, at the level of the statement.
_CLAUSES = frozenset(
    """
    select from where group having order limit union intersect except values set window qualify
    insert
    """.split()  # noqa: SIM905
)
_JOINS = frozenset(["join", "left", "right", "full", "inner", "cross", "natural"])
_JOIN_WORDS = _JOINS | {"outer", "semi", "anti", "lateral"}


class Token(NamedTuple):
    """A part of a query; `kind` is keyword, text, number, comment, name or empty."""

    kind: str
    text: str


def formatted(query: str) -> list[Token]:
    """The tokens of a query. One line with several clauses becomes one line a clause."""
    tokens = list(_tokens(query.strip()))
    if "\n" in query.strip() or len(query) < 60:
        return tokens
    return list(_on_lines(tokens))


def _tokens(query: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(query):
        kind = match.lastgroup or ""
        word = match[0]
        if kind == "word":
            kind = "keyword" if word.lower() in KEYWORDS else ""
        yield Token("" if kind in ("space", "other") else kind, word)


def _on_lines(tokens: list[Token]) -> Iterator[Token]:
    depth = 0
    before = ""  # the word before, in lower case
    clause = ""
    for number, token in enumerate(tokens):
        word = token.text.lower()
        depth += (word == "(") - (word == ")")
        is_clause = token.kind == "keyword" and (
            word in _CLAUSES or (word in _JOINS and before not in _JOIN_WORDS)
        )
        if word == "select" and before in ("(", "as") and depth:
            is_clause = False
        following = tokens[number + 1].text if number + 1 < len(tokens) else ""
        if is_clause and before and not depth and not (word in ("left", "right") and following == "("):
            yield Token("", "\n")
        if is_clause and not depth:
            clause = word
        yield token if not token.text.isspace() else Token("", " ")
        if word == "," and not depth and clause in ("select", "set"):
            yield Token("", "\n   ")
        if not token.text.isspace():
            before = word
