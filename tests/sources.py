"""The modules of the package, for tests about how the code is built."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
        return ast.parse(self.text)

    def imports(self) -> Iterator[str]:
        """Dotted names of everything imported, also inside functions, but not what only types need."""
        typing_only = {
            id(inner)
            for node in ast.walk(self.tree_once())
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            for inner in ast.walk(node)
        }
        for node in ast.walk(self.tree_once()):
            if id(node) in typing_only:
                continue
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name} has a relative import"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def tree_once(self) -> ast.Module:
        return _TREES.setdefault(self.name, self.tree)


_TREES: dict[str, ast.Module] = {}


def modules() -> list[Module]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, path.read_text(encoding="utf-8")))
    return found
