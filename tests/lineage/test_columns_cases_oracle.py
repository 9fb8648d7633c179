"""The expectations of tests/cases/columns against the oracle: every case that DuckDB can run.

The cases are written from our own output, so that a fault in it would be expected for good. Here each input
that is seen to change an output must be among the expected edges; Spark takes no part.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import duckdb
import pytest
import sqlglot
from sqlglot.errors import SqlglotError

from tests.lineage.column_cases import FOLDER, Case, read_cases
from tests.lineage.oracle import Oracle

# Columns of other types have no values in the oracle's tables; their cases are not run.
KINDS = {"int", "string", "double", "date", "timestamp", "array<int>"}
CASES = [case for path in sorted(FOLDER.glob("*.txt")) for case in read_cases(path)]
FEWEST = 150
"""Cases that must run, so that a change of sqlglot or DuckDB does not empty this test."""


def columns_of(text: str) -> dict[str, str]:
    """The columns of a table by name, as DuckDB's types; those of other kinds are left out."""
    parts = re.split(r",\s*(?![^<>]*>)", text.partition("|")[0])
    named = dict(part.strip().split(" ", 1) for part in parts if part.strip())
    return {
        name: kind.replace("array<int>", "int[]")
        for name, kind in ((name, kind.strip()) for name, kind in named.items())
        if kind in KINDS
    }


def left_out(tables: dict[str, str]) -> list[str]:
    """The names of columns that the oracle's tables do not have."""
    every = (
        part.split()[0]
        for columns in tables.values()
        for part in re.split(r",\s*(?![^<>]*>)", columns.partition("|")[0])
        if part.strip()
    )
    known = {name for columns in tables.values() for name in columns_of(columns)}
    return [name for name in every if name not in known]


@cache
def oracle_of(tables: tuple[tuple[str, str], ...]) -> Oracle:
    return Oracle({name: columns_of(columns) for name, columns in tables})


def edges_of(expected: str) -> tuple[list[set[tuple[str, str]]], set[tuple[str, str]]]:
    """The inputs of each output column in order, and those of all; parts of columns are their columns."""
    outputs: list[set[tuple[str, str]]] = []
    names: set[str] = set()
    rows: set[tuple[str, str]] = set()
    for line in expected.splitlines():
        name, arrow, inputs = line.partition(" <- ")
        if not arrow:
            continue
        found = set()
        for one in inputs.split("; ") if inputs != "nothing" else ():
            path = one.split(" ")[0].partition("#")[0].split(".")
            found.add((path[0], path[1]))
        if name == "*":
            rows = found
        elif name.rpartition(".")[0] not in names:
            names.add(name)
            outputs.append(found)
    return outputs, rows


def missing(case: Case) -> list[str] | None:
    """Inputs that change an output and are no edge; None if the case cannot be run."""
    if case.is_python or "\n? " in f"\n{case.expected}" or any("." in name for name in case.tables):
        return None
    if re.search(r"\brecursive\b|\btablesample\b", case.query, re.IGNORECASE):
        return None  # with the oracle's rows it may not end, or it is random
    if any(re.search(rf"\b{name}\b", case.query) for name in left_out(case.tables)):
        return None
    outputs, rows = edges_of(case.expected)
    try:
        [query] = sqlglot.transpile(case.query, read="spark", write="duckdb")
        oracle = oracle_of(tuple(case.tables.items()))
        if oracle.is_random(query):
            return None
        seen = oracle.influences(query)
    except (SqlglotError, duckdb.Error, ValueError):
        return None
    if seen.outputs != len(outputs):
        return None
    return [
        f"{case.file}: {case.name}: {source[0]}.{source[1]} changes output {place}"
        for place, source in sorted(seen.pairs)
        if source not in outputs[place] | rows
    ]


@pytest.mark.long
def test_expected_edges_have_every_input_that_changes_an_output_when_duckdb_can_run_the_case() -> None:
    found = {(case.file, case.name): missing(case) for case in CASES}
    ran = Counter(result is not None for result in found.values())
    print(f"\n{ran[True]} of {len(CASES)} cases were run")
    assert [text for result in found.values() if result for text in result] == []
    assert ran[True] >= FEWEST


@pytest.mark.long
@pytest.mark.parametrize(
    ("edge", "other"), [("b <- t.b IDENTITY", "b <- nothing"), ("* <- t.a FILTER", "* <- t.b FILTER")]
)
def test_an_edge_that_is_not_expected_is_found_when_it_is_missing(edge: str, other: str) -> None:
    expected = "a <- nothing\nb <- t.b IDENTITY\n* <- t.a FILTER"
    query = "select 1 as a, b from t where a > 1"
    case = Case("made", "one", {"t": "a int, b string"}, query, expected)
    assert missing(case) == []
    assert missing(case._replace(expected=expected.replace(edge, other))) != []
