"""Every module says what is public, and what it says is there."""

from __future__ import annotations

import importlib
import re

import pytest

from .sources import Module, modules

FORBIDDEN = re.compile(r"\b(class|def)\s+\w*(Manager|Helper|Util|Impl)\b")


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_public_names_are_listed_and_exist_when_a_module_is_imported(module: Module) -> None:
    if module.name == "headwater.__main__":
        assert "__all__" in module.text
        return
    loaded = importlib.import_module(module.name)
    if module.path.name == "__init__.py" and len(module.tree.body) == 1:
        assert loaded.__doc__  # a folder that says what it is and offers nothing itself
        return
    names = loaded.__all__
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(loaded, name)] == []
    assert [name for name in names if name.startswith("_") and name != "__version__"] == []


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_each_module_says_what_it_is_when_it_is_read(module: Module) -> None:
    assert module.text.startswith('"""')
    assert FORBIDDEN.search(module.text) is None
