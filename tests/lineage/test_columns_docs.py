"""The page about column lineage has every rule. HEADWATER_UPDATE_CASES=1 rewrites its tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.lineage.columns.column_graph import EXPRESSION_RULES, NODE_RULES
from headwater.lineage.columns.written_columns import ColumnSettings
from headwater.lineage.settings import LineageSettings

PAGE = Path(__file__).parents[2] / "docs" / "column-lineage.md"


def rows(rules: Mapping[str, tuple[Any, str]]) -> list[str]:
    """One line for each rule: its classes, and its sentence."""
    classes: dict[tuple[int, str], list[str]] = {}
    for cls, (rule, says) in rules.items():
        classes.setdefault((id(rule), says), []).append("any other" if cls == "*" else f"`{cls}`")
    return [f"| {', '.join(sorted(names))} | {says} |" for (_, says), names in classes.items()]


def tables() -> str:
    """Both tables, as the page ends with them."""
    head = "| {} | rule |\n|---|---|\n"
    nodes = head.format("node") + "\n".join(rows(NODE_RULES))
    return f"{nodes}\n\n{head.format('expression')}" + "\n".join(rows(EXPRESSION_RULES)) + "\n"


def test_the_page_ends_with_the_rules_when_they_are_looked_up() -> None:
    text = PAGE.read_text(encoding="utf-8")
    begin = text.index("| node | rule |")
    if os.environ.get("HEADWATER_UPDATE_CASES"):
        PAGE.write_text(text[:begin] + tables(), encoding="utf-8")
        return
    assert text[begin:] == tables()


def test_budgets_are_those_of_the_page_when_nothing_is_set() -> None:
    text = PAGE.read_text(encoding="utf-8")
    settings = LineageSettings()
    assert f"| columns of an output | {settings.column_lineage_max_columns:,} |" in text
    assert f"| edges of an output | {settings.column_lineage_max_edges:,} |" in text
    assert f"| time for an event | {settings.deadline_millis // 1000} seconds |" in text
    assert ColumnSettings().max_edges == settings.column_lineage_max_edges
