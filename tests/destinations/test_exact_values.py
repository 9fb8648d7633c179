"""Staged values are in their column unchanged, or as JSON in `_unmapped_data`: no product rounds or cuts one.

What is staged, and what must be read back, is decided by plain Python: `tests.support.value_oracle`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.destinations.base import Load, load_destination
from headwater.destinations.column_types import Kind
from headwater.destinations.table import ROW, UNMAPPED, Column, table_of
from headwater.settings import DestinationSettings
from tests.parts.clickhouse import ClickHouseEngine
from tests.parts.postgres import PostgresServer
from tests.support.value_oracle import Number, instant, parse, problem
from tests.support.value_products import Product, three_products
from tests.support.values import KINDS, Values, must_be_stored

STAGED = {
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "bool": pa.bool_(),
    "time": pa.timestamp("us", "UTC"),
}
LOGICAL = {
    "int": Kind.INT64,
    "float": Kind.FLOAT64,
    "text": Kind.STRING,
    "bool": Kind.BOOL,
    "time": Kind.TIMESTAMP,
}
# of tables that another program made
NARROW = {
    "duckdb": {
        "float_decimal": "DECIMAL(10,2)",
        "float_real": "REAL",
        "time_date": "DATE",
        "int_small": "SMALLINT",
    },
    "postgres": {
        "float_decimal": "numeric(10,2)",
        "float_real": "real",
        "time_date": "date",
        "int_small": "smallint",
    },
    "clickhouse": {
        "float_decimal": "Nullable(Decimal(10,2))",
        "time_seconds": "Nullable(DateTime('UTC'))",
        "int_small": "Nullable(Int16)",
    },
}


def staged(kind: str, token: str) -> Any:
    """The value that is staged for a column of the kind; None: it has no exact form, and is aside."""
    value = parse(token)
    if kind == "text":
        if isinstance(value, str):
            return value
        return None if value is None else token
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if kind == "time":
        at = instant(value) if isinstance(value, str) else None
        low, high = -62_135_596_800_000_000, 253_402_300_799_999_999
        return int(at) if at is not None and at.denominator == 1 and low <= at <= high else None
    if not isinstance(value, Number):
        return None
    number = Decimal(value.text)
    if kind == "int":
        return (
            int(number) if number == number.to_integral_value() and -(1 << 63) <= number < 1 << 63 else None
        )
    double = float(number)
    return double if abs(double) < float("inf") and Decimal(repr(double)) == number else None


def store(product: Product, folder: Path, columns: dict[str, str], events: list[dict[str, str]]) -> None:
    """Loads the events; `columns` has the kind of each column."""
    types = NARROW[product.name]
    rows: dict[str, list[Any]] = {name: [] for name in [*columns, UNMAPPED]}
    for event in events:
        aside = []
        for name, kind in columns.items():
            value = staged(kind, event[name])
            rows[name].append(value)
            if value is None and event[name] != "null":
                aside.append(f"{msgspec.json.encode(name).decode()}:{event[name]}")
        rows[UNMAPPED].append(f"{{{','.join(aside)}}}" if aside else None)
    arrays = {name: pa.array(rows[name], STAGED[kind]) for name, kind in columns.items()}
    arrays["n"] = pa.array(range(1, len(events) + 1), pa.int64())
    arrays |= {UNMAPPED: pa.array(rows[UNMAPPED], pa.string()), ROW: arrays["n"]}
    folder.mkdir()
    pq.write_table(pa.table(arrays), folder / "rows.parquet")
    made = [
        Column(name, LOGICAL[kind], types.get(name, "")) for name, kind in (columns | {"n": "int"}).items()
    ]
    destination = load_destination(
        DestinationSettings(id=product.name, type=product.name, options=dict(product.options))
    )
    destination.connect()
    try:
        table = destination.patch(table_of("events", [*made, Column(UNMAPPED, Kind.JSON)]))
        files = [str(folder / "rows.parquet")]
        loaded = destination.load(Load(id="all", table=table, files=files, rows=len(events)))
    finally:
        destination.close()
    assert not loaded.refused, loaded.refused[:3]


def check(product: Product, folder: Path, pairs: int) -> list[str]:
    """What is wrong with the values of a table of all kinds of columns."""
    values = Values(seed=pairs)
    columns = {kind: kind for kind in KINDS} | {name: name.split("_")[0] for name in NARROW[product.name]}
    events = [
        {name: values.of_mix(kind, n % 4) for name, kind in columns.items()}
        for n in range(pairs // len(columns))
    ]
    store(product, folder, columns, events)
    _, rows = product.rows("events")
    assert sorted(rows) == [*range(1, len(events) + 1)]
    found = []
    for n, (name, kind) in itertools.product(rows, columns.items()):
        token = events[n - 1][name]
        text = problem(kind, name, token, rows[n], is_typed=name not in KINDS)
        if not text and name in KINDS and rows[n].columns.get(name) is None:
            is_ordinary = must_be_stored(kind, token, product.name) and staged(kind, token) is not None
            text = f"{name}: {token} is aside" if is_ordinary else ""
        if text:
            found.append(text)
    return found


@pytest.fixture(params=range(3), ids=["duckdb", "postgres", "clickhouse"])
def product(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer, clickhouse: ClickHouseEngine
) -> Iterator[Product]:
    with three_products(tmp_path, postgres, clickhouse) as found:
        yield found[request.param]


def test_each_staged_value_is_the_same_or_aside_when_it_is_stored(product: Product, tmp_path: Path) -> None:
    problems = check(product, tmp_path / "staged", 4_000)
    assert not problems, problems[:20]


@pytest.mark.long
def test_each_staged_value_is_the_same_or_aside_when_very_many_are_stored(
    product: Product, tmp_path: Path, full: bool
) -> None:
    problems = check(product, tmp_path / "staged", 100_000 if full else 20_000)
    assert not problems, problems[:20]
