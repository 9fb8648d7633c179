"""Every statement about batch mode has tests, and these are tests that pytest collects."""

from __future__ import annotations

import importlib

import pytest

from tests.pipeline.statements import STATEMENTS

ALL = [
    pytest.param(tests, id=f"{section}: {text}")
    for section, statements in STATEMENTS.items()
    for text, tests in statements.items()
]


@pytest.mark.parametrize("tests", ALL)
def test_a_statement_is_tested_when_it_is_made(tests: list[str]) -> None:
    assert tests
    for test in tests:
        path, *names = test.split("::")
        assert path.startswith("tests/")
        assert path.rpartition("/")[2].startswith("test_"), "pytest would not look into it"
        found: object = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        for name in names:
            assert name.startswith(("test_", "Test")), "pytest would not collect it"
            found = getattr(found, name)
        assert callable(found), test
