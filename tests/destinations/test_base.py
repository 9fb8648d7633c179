"""Destinations are found by their entry points and made from settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.destinations.base import destination_class, load_destination
from headwater.destinations.column_types import Kind
from headwater.errors import ExtensionError, SettingsError
from headwater.settings import DestinationSettings

# The SQL types that tables of earlier releases have.
TYPES = {
    "postgres": {"STRING": "text", "FLOAT64": "numeric(38,18)", "INT64": "bigint", "BOOL": "boolean"},
    "clickhouse": {"STRING": "String", "FLOAT64": "Float64", "INT64": "Int64", "BOOL": "UInt8"},
    "redshift": {
        "STRING": "character varying(65535)",
        "FLOAT64": "numeric(38,18)",
        "INT64": "bigint",
        "BOOL": "boolean",
    },
    "bigquery": {"STRING": "string", "FLOAT64": "float", "INT64": "integer", "BOOL": "boolean"},
    "snowflake": {"STRING": "text", "FLOAT64": "numeric(38,18)", "INT64": "bigint", "BOOL": "boolean"},
}


@pytest.mark.parametrize("name", ["duckdb", "http", *TYPES])
def test_a_type_is_known_by_every_kind_when_it_is_built_in(name: str) -> None:
    types = destination_class(name).capabilities.types
    assert set(types) == set(Kind)
    for kind, sql_type in TYPES.get(name, {}).items():
        assert types[Kind(kind)] == sql_type


def test_a_destination_is_made_from_its_own_options_when_they_are_right(tmp_path: Path) -> None:
    settings = DestinationSettings(
        id="dwh", type="duckdb", options={"path": str(tmp_path / "x"), "threads": "2"}
    )
    destination = load_destination(settings)
    assert (destination.id, destination.options.threads) == ("dwh", 2)


def test_the_wrong_option_is_named_when_there_is_one() -> None:
    with pytest.raises(SettingsError, match=r"destination dwh(.|\n)*did you mean `path`"):
        load_destination(DestinationSettings(id="dwh", type="duckdb", options={"pth": "x"}))


def test_the_installed_types_are_named_when_one_is_unknown() -> None:
    with pytest.raises(
        ExtensionError,
        match=r"`oracle`.*bigquery, clickhouse, delta, duckdb, http, iceberg, postgres, redshift, snowflake",
    ):
        destination_class("oracle")


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("duckdb", {"path": "/data/w.duckdb"}, ("duckdb:///data/w.duckdb", "main.orders")),
        (
            "postgres",
            {"url": "postgresql://u:secret@db.example/shop"},
            ("postgres://db.example:5432", "shop.headwater.orders"),
        ),
        (
            "redshift",
            {"url": "postgresql://u:secret@rs/shop", "staging_url": "s3://bucket/x"},
            ("redshift://rs:5439", "shop.headwater.orders"),
        ),
        (
            "postgres",
            {"url": "postgresql://db.example/shop", "schema": "public"},
            ("postgres://db.example:5432", "shop.public.orders"),
        ),
        (
            "clickhouse",
            {"url": "http://u:secret@ch:9000", "database": "raw"},
            ("clickhouse://ch:9000", "raw.orders"),
        ),
        (
            "snowflake",
            {"account": "acme-x", "user": "u", "database": "shop"},
            ("snowflake://acme-x", "SHOP.HEADWATER.ORDERS"),
        ),
        ("bigquery", {"project": "acme", "dataset": "shop"}, ("bigquery", "acme.shop.orders")),
        ("http", {"url": "https://u:secret@collect.example"}, ("http://dwh", "orders")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_dataset_has_no_credentials_when_a_table_is_named(
    name: str, options: dict[str, str], expected: tuple[str, str]
) -> None:
    destination = load_destination(DestinationSettings(id="dwh", type=name, options=options))
    assert destination.dataset("orders") == expected
