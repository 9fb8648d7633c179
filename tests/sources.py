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
        """Dotted names of all imports, also inside functions, except those under TYPE_CHECKING."""
        return _imports(self)

    def imports_when_loaded(self) -> tuple[str, ...]:
        """Dotted names of the imports that run when the module is loaded."""
        return _imports(self, when_loaded=True)


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
    return parse(text)


def parse(text: str) -> ast.Module:
    """`ast.parse`, repeated where CPython mistakes the depth of another thread's tree for its own.

    Threads that earlier tests left to end may format a traceback meanwhile, which parses source too. CPython
    before 3.11.9 and 3.12.3 then raises SystemError, whose text names the "AST constructor recursion depth".
    """
    for _ in range(10):
        try:
            return ast.parse(text)
        except SystemError as error:
            if "AST constructor recursion depth" not in str(error):
                raise
    return ast.parse(text)


@cache
def _imports(module: Module, *, when_loaded: bool = False) -> tuple[str, ...]:
    found: list[str] = []
    for node in _statements(module.tree, into_functions=not when_loaded):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name} has a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def _statements(node: ast.AST, *, into_functions: bool) -> Iterator[ast.AST]:
    """All nodes below, except those that only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not into_functions:
            continue
        yield child
        yield from _statements(child, into_functions=into_functions)
