"""Values on their way into three products: each is in its column, or its bytes are in `_unmapped_data`.

What is expected comes from `tests.support.value_oracle`: plain Python, without code of the pipeline.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.parts.clickhouse import ClickHouseEngine
from tests.parts.postgres import PostgresServer
from tests.pipeline.drift_corpus import DRIFT
from tests.pipeline.rig import Rig
from tests.support.value_oracle import problem, problems_of_object
from tests.support.value_products import Product, three_products
from tests.support.values import KINDS, MIXES, Values, must_be_stored


@pytest.fixture
def products(rig: Rig, postgres: PostgresServer, clickhouse: ClickHouseEngine) -> Iterator[list[Product]]:
    """The three products, each with a place of its own."""
    with three_products(rig.folder, postgres, clickhouse) as found:
        yield found


def load(rig: Rig, products: list[Product], events: list[str], **destination: Any) -> None:
    rig.file([event.encode() for event in events])
    settings = rig.settings(
        *(
            {"id": each.name, "type": each.name, "options": dict(each.options)} | destination
            for each in products
        )
    )
    report = rig.cycle(settings)
    assert report.is_complete, report.errors


# --- the property


def events_of(seed: int, count: int) -> list[dict[str, str]]:
    """Events with a value for each pair of a column's kind and a mix of values."""
    values = Values(seed)
    return [
        {f"{kind}_{mix}": values.of_mix(kind, mix) for kind in KINDS for mix in range(MIXES)}
        for _ in range(count)
    ]


def as_json(number: int, event: dict[str, str]) -> str:
    return f'{{"n":{number}' + "".join(f',"{name}":{token}' for name, token in event.items()) + "}"


def check(rig: Rig, products: list[Product], events: list[dict[str, str]]) -> dict[str, Counter[str]]:
    """The problems of each product, by what they have in common."""
    first = {f"{kind}_{mix}": value for kind, value in KINDS.items() for mix in range(MIXES)}
    load(rig, products, [as_json(0, first)], widen_columns="never")
    load(rig, products, [as_json(n, event) for n, event in enumerate(events, 1)], widen_columns="never")
    found: dict[str, Counter[str]] = {}
    for product in products:
        problems = found[product.name] = Counter[str]()
        kinds, rows = product.rows("events")
        assert {kinds[name] for name in first} == {*KINDS}
        for n, event in enumerate(events, 1):
            if n not in rows:
                problems[f"event {n} is missing: {as_json(n, event)[:200]}"] += 1
                continue
            for name, token in event.items():
                text = problem(kinds[name], name, token, rows[n])
                stored = rows[n].columns.get(name)
                if not text and stored is None and must_be_stored(kinds[name], token, product.name):
                    text = f"{name}: {token} is aside"
                if text:
                    problems[text] += 1
    return found


def listed(problems: dict[str, Counter[str]]) -> str:
    return "\n".join(f"{name}: {text}" for name, found in problems.items() for text in list(found)[:20])


def test_each_value_is_the_same_or_aside_when_it_meets_a_column_of_any_kind(
    rig: Rig, products: list[Product]
) -> None:
    problems = check(rig, products, events_of(seed=16, count=60))
    assert not any(problems.values()), listed(problems)


@pytest.mark.long
def test_each_value_is_the_same_or_aside_when_very_many_meet_columns_of_any_kind(
    rig: Rig, products: list[Product], full: bool
) -> None:
    pairs = 100_000 if full else 10_000
    problems = check(rig, products, events_of(seed=2026, count=pairs // (len(KINDS) * MIXES)))
    assert not any(problems.values()), listed(problems)


# --- times of more digits than their column


SECONDS = {
    "duckdb": ("CREATE TABLE events (n BIGINT, moment TIMESTAMP_S)",),
    "postgres": ("CREATE SCHEMA {schema}", "CREATE TABLE {schema}.events (n bigint, moment timestamp(0))"),
    "clickhouse": (
        "CREATE DATABASE {database}",
        "CREATE TABLE {database}.events (n Int64, moment Nullable(DateTime('UTC'))) "
        "ENGINE = MergeTree ORDER BY tuple()",
    ),
}


def test_all_digits_of_a_time_are_aside_once_when_its_column_keeps_seconds(
    rig: Rig, products: list[Product], postgres: PostgresServer, clickhouse: ClickHouseEngine
) -> None:
    def in_postgres(statement: str) -> None:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    run: dict[str, Callable[[str], object]] = {
        "duckdb": products[0].query,
        "postgres": in_postgres,
        "clickhouse": clickhouse.client.command,
    }
    for product in products:
        for statement in SECONDS[product.name]:
            run[product.name](statement.format(**product.options))
    times = [f"2026-11-16T10:00:00{fraction}Z" for fraction in (".123456789", ".000000001", ".5", "")]
    events = [f'{{"n":{n},"moment":"{at}"}}' for n, at in enumerate(times)]
    load(rig, products, events, adopt_tables=["events"])
    for product in products:
        relation = ".".join([*filter(None, map(product.options.get, ("schema", "database"))), "events"])
        rest = "_unmapped_data" if product.name == "clickhouse" else "CAST(_unmapped_data AS text)"
        found = product.query(f"SELECT n, moment, {rest} AS rest FROM {relation} ORDER BY n")
        stored = [row["moment"] is not None for row in found]
        assert stored == [False, True, False, True], product.name
        for row, at in zip(found[:3], times, strict=False):
            # in the text itself: a parser would drop a repeated key
            text = row["rest"].replace(" ", "")
            assert json.loads(text) == {"moment": at if at != times[2] else json.loads(text)["moment"]}, (
                product.name
            )
            assert text.count('"moment"') == 1, product.name
        assert found[3]["rest"] is None, product.name


# --- drift


@pytest.mark.parametrize("widen", ["never", "text"])
def test_every_row_has_its_values_when_fields_drift_from_event_to_event(
    rig: Rig, products: list[Product], widen: str
) -> None:
    rows = max(map(len, DRIFT.values()))
    events = []
    for n in range(rows):
        given = {name: values[n] for name, values in DRIFT.items() if n < len(values) and values[n]}
        events.append(as_json(n, given))
    load(rig, products, events[:1], widen_columns=widen)
    load(rig, products, events[1:], widen_columns=widen)
    found = {}
    for product in products:
        kinds, stored = product.rows("events")
        assert sorted(stored) == list(range(rows)), product.name
        found[product.name] = [
            text
            for n, event in enumerate(events)
            for text in problems_of_object(kinds, event, stored[n], is_widened=widen == "text")
        ]
    assert not any(found.values()), "\n".join(
        f"{name}: {each}" for name, own in found.items() for each in own
    )
