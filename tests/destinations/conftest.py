"""Servers that stand in for the warehouses of the clouds."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.destinations.stand_ins import mark
from tests.parts import bigquery_emulator as bigquery_emulator_part
from tests.parts import snowflake_stand_in
from tests.parts.bigquery_emulator import BigQueryEmulator
from tests.parts.cache import Missing
from tests.parts.object_store import ObjectStore
from tests.parts.snowflake_stand_in import FakeSnow
from tests.parts.venvs import python_with


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install the environments of the stand-ins while other tests run: it takes minutes, once."""
    wanted = {getattr(getattr(item, "cls", None), "stand_in", "") for item in session.items}
    if {"fakesnow", "bqemulator"} & wanted:
        threading.Thread(target=_make, args=(wanted,), daemon=True).start()


def _make(wanted: set[str]) -> None:
    requirements = {
        "fakesnow": snowflake_stand_in.REQUIREMENTS,
        "bqemulator": bigquery_emulator_part.REQUIREMENTS,
    }
    for name in requirements.keys() & wanted:
        try:
            python_with(name, *requirements[name])
        except Missing:
            pass  # the fixture raises the same error, and the test is skipped


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """A server that speaks S3. Use a prefix of your own."""
    try:
        store = ObjectStore()
    except Missing as missing:
        pytest.skip(str(missing))
    with store:
        yield store


@pytest.fixture(scope="session")
def fakesnow() -> Iterator[FakeSnow]:
    """An imitation of Snowflake. Use a schema of your own."""
    try:
        server = FakeSnow()
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture(scope="session")
def bigquery_emulator() -> Iterator[BigQueryEmulator]:
    """An imitation of BigQuery. Use a dataset of your own."""
    try:
        server = BigQueryEmulator()
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        yield server
