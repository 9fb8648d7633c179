"""The examples of docs/extension-points.md as Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["example"]

PAGE = Path(__file__).parents[2] / "docs" / "extension-points.md"


def example(text: str) -> dict[str, Any]:
    """The names that the example with the text defines."""
    page = PAGE.read_text(encoding="utf-8")
    code = next(code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if text in code)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, PAGE.name, "exec", dont_inherit=True), names)
    return names
