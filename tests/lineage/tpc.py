"""The queries and tables of TPC-H and TPC-DS, as DuckDB's extensions have them; fetched once and kept.

Their texts belong to the TPC, so the repository does not contain them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.parts.cache import Missing, once

__all__ = ["Benchmark", "benchmark"]

VERSION = "1.5.5"  # of DuckDB and of its extensions, which go together
INSTALL_SECONDS = 600

_DUMP = """
import importlib, json, pathlib, sys, duckdb
folder = pathlib.Path(sys.argv[1])
for name, fill in (("tpch", "dbgen"), ("tpcds", "dsdgen")):
    package = importlib.import_module(f"duckdb_extension_{name}")
    [extension] = pathlib.Path(package.__file__).parent.rglob("*.duckdb_extension")
    database = duckdb.connect()
    database.execute(f"load '{extension}'")
    database.execute(f"call {fill}(sf=0)")
    tables = {}
    for table, column, kind in database.execute(
        "select table_name, column_name, data_type from information_schema.columns order by ordinal_position"
    ).fetchall():
        tables.setdefault(table, {})[column] = kind
    queries = dict(database.execute(f"select query_nr, query from {name}_queries()").fetchall())
    (folder / f"{name}.json").write_text(json.dumps({"tables": tables, "queries": queries}))
"""


class Benchmark(NamedTuple):
    """Columns and types by table, and queries by number."""

    tables: dict[str, dict[str, str]]
    queries: dict[int, str]


def benchmark(name: str) -> Benchmark:
    """`tpch` or `tpcds`; raises Missing where they cannot be had."""
    found = json.loads((once(f"tpc-{VERSION}", _fill) / f"{name}.json").read_text(encoding="utf-8"))
    return Benchmark(found["tables"], {int(number): text for number, text in found["queries"].items()})


def _fill(folder: Path) -> None:
    tool = folder / "tool"
    _run(sys.executable, "-m", "venv", "--without-pip", str(tool))
    python = str(tool / "bin" / "python")
    packages = [
        f"{name}=={VERSION}" for name in ("duckdb", "duckdb-extension-tpch", "duckdb-extension-tpcds")
    ]
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", *packages)
    _run(python, "-c", _DUMP, str(folder))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise Missing(f"the queries of TPC cannot be had: {str(said).strip()[-200:]}") from error
