"""Public modules list their names, and what is listed exists; every other module is internal."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

from .sources import ROOT, Module, modules

PAGE = ROOT / "docs" / "extension-points.md"
PUBLIC = [
    "headwater.extend.outlets",
    "headwater.extend.failed_handlers",
    "headwater.extend.destinations",
    "headwater.extend.enrichers",
    "headwater.extend.lineage",
    "headwater.lineage",
    "headwater.delivery",
    "headwater.pipeline",
    "headwater.notebook",
    "headwater.spool",
    "headwater.testing",
    "headwater.testing.outlets",
    "headwater.testing.destinations",
    "headwater.testing.lineage",
]
HEAVY = {"pyspark", "py4j", "duckdb", "pyarrow", "openlineage"}
FORBIDDEN = re.compile(r"\b(class|def)\s+\w*(Manager|Helper|Util|Impl)\b")


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_public_names_are_listed_and_exist_when_a_module_is_imported(module: Module) -> None:
    if module.name == "headwater.__main__":
        return  # runs the command line
    loaded = importlib.import_module(module.name)
    assert loaded.__doc__
    names = getattr(loaded, "__all__", [])
    assert names or module.name not in PUBLIC
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(loaded, name)] == []
    assert [name for name in names if name.startswith("_") and name != "__version__"] == []


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_each_module_says_what_it_is_when_it_is_read(module: Module) -> None:
    assert module.text.startswith('"""')
    assert FORBIDDEN.search(module.text) is None


@pytest.mark.parametrize("name", PUBLIC)
def test_the_page_lists_every_public_name_when_a_module_is_public(name: str) -> None:
    sections = re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (section,) = [section for section in sections if section.partition("\n")[0] == name]
    listed = re.findall(r"^\| `(\w+)` \| (\S.*\.) \|$", section, re.MULTILINE)
    assert sorted(listed) == sorted(set(listed))
    assert {public for public, _ in listed} == set(importlib.import_module(name).__all__)


def test_every_module_for_extensions_is_public_when_it_is_listed() -> None:
    found = [module.name for module in modules() if module.name.startswith("headwater.extend.")]
    assert sorted(found) == sorted(name for name in PUBLIC if name.startswith("headwater.extend."))


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("headwater.extend", set()),
        ("headwater.extend.outlets", set()),
        ("headwater.extend.failed_handlers", set()),
        ("headwater.extend.enrichers", set()),
        ("headwater.extend.destinations", {"pyarrow"}),
        ("headwater.delivery", set()),
    ],
)
def test_no_library_is_loaded_that_is_not_needed_when_it_is_imported(name: str, allowed: set[str]) -> None:
    code = f"import sys, {name}; print(*{{module.partition('.')[0] for module in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} & HEAVY == allowed
