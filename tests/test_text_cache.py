"""The cache of texts that clients choose; and no other cache of texts exists."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator

import pytest

from headwater.gateway import event_routes, json_limits
from headwater.graph.store import ids
from headwater.system.network import ClientAddresses
from headwater.text_cache import MAX_CHARACTERS, text_cache
from tests.sources import modules

# Arguments of such types take a fixed number of bytes.
SMALL = {"int", "bool", "float", "Kind"}
# They run in the user's process, on texts of the user's own job; or on names of files and packages of ours.
NOT_OF_CLIENTS = (
    "headwater.extensions",
    "headwater.lineage.",
    "headwater.page.templates",
    "headwater.text_cache",
)


def caches_of_texts(tree: ast.AST) -> Iterator[str]:
    """Functions with a cache of `functools` and a parameter that may hold any number of bytes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            cached = any("cache" in ast.unparse(each).split("(")[0] for each in node.decorator_list)
            ours = any(ast.unparse(each).startswith("text_cache") for each in node.decorator_list)
            kinds = [ast.unparse(each.annotation) if each.annotation else "" for each in node.args.args]
            if cached and not ours and not set(kinds) <= SMALL:
                yield node.name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Call):
            made_by = ast.unparse(node.func.func)  # lru_cache(10)(function)
            if "cache" in made_by and "text_cache" not in made_by:
                yield ast.unparse(node)


def test_no_cache_holds_texts_of_clients_without_a_limit_of_bytes() -> None:
    found = [
        f"{module.name}: {name}"
        for module in modules()
        if not module.name.startswith(NOT_OF_CLIENTS)
        for name in caches_of_texts(module.tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    ["@lru_cache(10)\ndef f(text: str): pass", "@cache\ndef f(a, b: int): pass", "x = lru_cache(10)(f)"],
)
def test_a_cache_is_found_when_it_holds_texts(source: str) -> None:
    assert list(caches_of_texts(ast.parse(source)))


def test_a_result_is_computed_once_when_the_text_is_short_and_each_time_when_it_is_long() -> None:
    calls: list[str] = []

    @text_cache(10)
    def length(text: str) -> int:
        calls.append(text)
        return len(text)

    @text_cache(10)
    def joined(first: str, second: str) -> str:
        calls.append(first)
        return first + second

    for text in ("a", "b" * MAX_CHARACTERS, "c" * (MAX_CHARACTERS + 1)):
        calls.clear()
        assert [length(text), length(text)] == [len(text)] * 2
        assert len(calls) == (1 if len(text) <= MAX_CHARACTERS else 2)
        calls.clear()
        assert joined(text, "") == joined(text, "") == text
        assert len(calls) == (1 if len(text) <= MAX_CHARACTERS else 2)


class Long(str):
    """A text that can be referred to weakly."""


def test_no_text_is_kept_when_long_ones_come() -> None:
    addresses = ClientAddresses(["127.0.0.0/8"])
    kept = []
    for number in range(20):
        long = Long(f"{number}" + "x" * 1_000)
        kept.append(weakref.ref(long))
        addresses.find("127.0.0.1", long)
        event_routes._accepted(long)
        json_limits._is_json(long)
        ids.dataset_id(long, "name")
        ids.job_id("namespace", long)
        ids.field_id(long)
        del long
    assert [each for each in kept if each() is not None] == []
