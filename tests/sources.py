"""The modules of the package, for tests about how the code is built."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"


class Module(NamedTuple):
    """One file: its dotted name, where it is, and its text."""

    name: str
    path: Path
    text: str

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.text)

    def imports(self) -> tuple[str, ...]:
        """Dotted names of everything imported, also inside functions, but not what only types need."""
        return _imports(self)


@cache
def modules() -> tuple[Module, ...]:
    """All of them; every test has the same ones, read once."""
    return tuple(_modules())


def _modules() -> Iterator[Module]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield Module(name, path, path.read_text(encoding="utf-8"))


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def _imports(module: Module) -> tuple[str, ...]:
    typing_only = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found: list[str] = []
    for node in ast.walk(module.tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name} has a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)
