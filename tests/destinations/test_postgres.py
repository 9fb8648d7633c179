"""A real Postgres passes the conformance suite, and what is its own."""

from __future__ import annotations

import datetime as dt
import math
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from headwater.destinations.base import Destination
from headwater.destinations.column_types import Kind
from headwater.destinations.postgres import PostgresDestination, PostgresSettings
from headwater.destinations.table import Column, Patch, table_of
from headwater.errors import (
    DestinationUnavailable,
    TableBusy,
    TableNotAllowed,
    TableRefused,
    WarehouseError,
)
from headwater.testing.destinations import DestinationConformance, Subject, staged_load
from headwater.testing.destinations.values import ValueTests
from tests.parts.postgres import PostgresServer


class PostgresSubject(Subject):
    def __init__(self, server: PostgresServer, kind: type[PostgresDestination] = PostgresDestination) -> None:
        self.server, self.kind = server, kind
        self.schema = f"test {uuid.uuid4().hex}"
        self.destination = self.another()

    def another(self) -> Destination:
        return self.kind("pg", PostgresSettings(url=self.server.url, schema=self.schema))

    def rows(self, table: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.server.url, row_factory=dict_row) as connection:
            name = psycopg.sql.Identifier(self.schema, table)
            return connection.execute(psycopg.sql.SQL("SELECT * FROM {}").format(name)).fetchall()

    def run(self, statement: str) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f'SET search_path = "{self.schema}"'.encode())
            connection.execute(statement.encode())

    def unreachable(self) -> Destination:
        return PostgresDestination("away", PostgresSettings(url="postgresql://127.0.0.1:1/none"))

    def close(self) -> None:
        super().close()
        self.run(f'DROP SCHEMA "{self.schema}" CASCADE')


class TestPostgres(DestinationConformance):
    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def make(self, tmp_path: Path) -> Subject:
        return PostgresSubject(self.postgres)


class Before16(PostgresDestination):
    """The suite on a server without pg_input_is_valid."""

    has_input_check_from = 10**9


class TestPostgresBefore16(ValueTests):
    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def make(self, tmp_path: Path) -> Subject:
        return PostgresSubject(self.postgres, Before16)


@pytest.fixture
def subject(postgres: PostgresServer) -> Iterator[PostgresSubject]:
    subject = PostgresSubject(postgres)
    subject.destination.connect()
    yield subject
    subject.close()


def test_one_of_two_loads_when_both_try_the_same_at_once(subject: PostgresSubject, tmp_path: Path) -> None:
    made = subject.destination.patch(table_of("t", [Column("v", Kind.INT64)]))
    load = staged_load(tmp_path, made, [{"v": i} for i in range(2_000)], id="same")
    results = []

    def attempt() -> None:
        destination = subject.another()
        destination.connect()
        results.append(destination.load(load))
        destination.close()

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.already for result in results) == [False, True, True, True]
    assert len(subject.rows("t")) == 2_000


def test_a_load_is_taken_after_a_retry_when_the_server_was_restarted(tmp_path: Path) -> None:
    server = PostgresServer()
    with server:
        destination = PostgresDestination("pg", PostgresSettings(url=server.url))
        destination.connect()
        made = destination.patch(table_of("t", [Column("v", Kind.INT64)]))
        load = staged_load(tmp_path, made, [{"v": 1}], id="again")
        server.stop()
        with pytest.raises(DestinationUnavailable):
            destination.load(load)
        with pytest.raises(DestinationUnavailable):
            destination.load(load)
        server.start()
        destination.connect()
        assert destination.load(load).rows == 1
        destination.close()


@pytest.mark.parametrize("key", [(), ("k",)])
def test_a_number_goes_to_unmapped_when_it_is_too_large(
    subject: PostgresSubject, tmp_path: Path, key: tuple[str, ...]
) -> None:
    columns = [Column("k", Kind.INT64), Column("v", Kind.FLOAT64)]
    made = subject.destination.patch(table_of("t", columns, key))
    values = [1e19, 1e20, -1e300, math.inf, math.nan, 0.1 + 0.2]
    rows = [{"k": i, "v": value} for i, value in enumerate(values)]
    result = subject.destination.load(staged_load(tmp_path, made, rows))
    assert (result.rows, result.unmapped) == (6, 4)
    found = sorted(subject.rows("t"), key=lambda row: row["k"])
    assert [row["v"] for row in found] == [
        Decimal(10**19),
        None,
        None,
        None,
        None,
        Decimal("0.30000000000000004"),
    ]
    assert [float(row["_unmapped_data"]["v"]) for row in found[1:3]] == [1e20, -1e300]


def test_users_types_are_cast_to_when_a_table_is_his_own(subject: PostgresSubject, tmp_path: Path) -> None:
    subject.run(
        "CREATE TABLE own (id uuid, day date, amount real, tags text[], short varchar(3), at timestamp)"
    )
    wanted = {"id": "STRING", "day": "STRING", "amount": "FLOAT64", "tags": "STRING", "short": "STRING"}
    columns = [Column(name, Kind(kind)) for name, kind in wanted.items()] + [Column("at", Kind.TIMESTAMP)]
    subject.destination.adopt_tables = ("own",)
    made = subject.destination.patch(table_of("own", columns))
    assert {name: column.kind.value for name, column in made.columns.items()} == wanted | {"at": "TIMESTAMP"}
    good = {
        "id": "6f2a6a6e-7c5c-4e3c-9f52-0b8a4f0c2d11",
        "day": "2026-11-16",
        "amount": 2.5,
        "tags": "{a,b}",
        "short": "abc",
        "at": dt.datetime(2026, 11, 16, 10, tzinfo=dt.UTC),
    }
    bad = {"id": "no", "day": "some day", "amount": 1e300, "tags": "[1]", "short": "too long", "at": None}
    result = subject.destination.load(staged_load(tmp_path, made, [good, bad]))
    assert (result.rows, result.unmapped) == (2, 5)
    first, second = subject.rows("own")
    assert (first["day"], first["tags"], first["at"]) == (
        dt.date(2026, 11, 16),
        ["a", "b"],
        dt.datetime(2026, 11, 16, 10),  # noqa: DTZ001
    )
    unmapped = second["_unmapped_data"]
    assert {**unmapped, "amount": float(unmapped["amount"]), "at": None} == bad


def test_a_row_is_set_aside_when_a_trigger_refuses_it(subject: PostgresSubject, tmp_path: Path) -> None:
    subject.run("CREATE TABLE guarded (v bigint)")
    subject.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.v = 3 THEN RAISE EXCEPTION 'not three'; END IF; RETURN NEW; END $$"
    )
    subject.run("CREATE TRIGGER guard BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION refuse()")
    subject.destination.adopt_tables = ("guarded",)
    made = subject.destination.patch(table_of("guarded", [Column("v", Kind.INT64)]))
    result = subject.destination.load(staged_load(tmp_path, made, [{"v": i} for i in range(6)]))
    assert [(row.row, row.reason) for row in result.refused] == [(3, "not three.")]
    assert len(subject.rows("guarded")) == 5


def test_a_row_is_set_aside_when_it_breaks_a_rule_only_beside_another(
    subject: PostgresSubject, tmp_path: Path
) -> None:
    subject.run("CREATE TABLE single (v bigint UNIQUE)")
    subject.destination.adopt_tables = ("single",)
    made = subject.destination.patch(table_of("single", [Column("v", Kind.INT64)]))
    rows = [{"v": value} for value in (1, 2, 1, 3)]
    result = subject.destination.load(staged_load(tmp_path, made, rows))
    assert [row.row for row in result.refused] == [2]
    assert sorted(row["v"] for row in subject.rows("single")) == [1, 2, 3]


def test_no_password_is_in_the_error_when_the_server_is_unreachable() -> None:
    destination = PostgresDestination("pg", PostgresSettings(url="postgresql://u:s3cret@127.0.0.1:1/d"))
    with pytest.raises(DestinationUnavailable) as caught:
        destination.connect()
    assert "s3cret" not in str(caught.value)


def test_each_connect_fails_when_the_schema_cannot_be_created(postgres: PostgresServer) -> None:
    destination = PostgresDestination("pg", PostgresSettings(url=postgres.url, schema="pg_reserved"))
    for _ in range(2):
        with pytest.raises(WarehouseError):
            destination.connect()


@contextmanager
def fresh_database(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database without a schema of ours."""
    name = f"fresh_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    try:
        yield psycopg.conninfo.make_conninfo(postgres.url, dbname=name)
    finally:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def schemas_of(url: str, *names: str) -> list[tuple[str, str]]:
    """The schemas of tables of these names."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT schemaname::text, tablename::text FROM pg_tables WHERE tablename = ANY(%s) ORDER BY 2, 1",
            [list(names)],
        ).fetchall()


def test_tables_have_a_schema_of_their_own_when_none_is_configured(postgres: PostgresServer) -> None:
    with fresh_database(postgres) as url:
        destination = PostgresDestination("pg", PostgresSettings(url=url))
        destination.connect()
        destination.patch(table_of("t", [Column("v", Kind.INT64)]))
        destination.close()
        assert schemas_of(url, "t", "_headwater_loads") == [
            ("headwater", "_headwater_loads"),
            ("headwater", "t"),
        ]


def test_tables_stay_in_public_when_the_ledger_of_an_earlier_release_is_there(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with fresh_database(postgres) as url:
        former = PostgresDestination("pg", PostgresSettings(url=url, schema="public"))
        former.connect()
        made = former.patch(table_of("t", [Column("v", Kind.INT64)]))
        load = staged_load(tmp_path, made, [{"v": 1}], id="before")
        former.load(load)
        former.close()
        with psycopg.connect(url) as connection:  # an earlier release had no registry
            connection.execute("DROP TABLE _headwater_tables")
        destination = PostgresDestination("pg", PostgresSettings(url=url))
        destination.connect()
        assert destination.dataset("t")[1].endswith(".public.t")
        assert destination.load(load).already
        made = destination.patch(table_of("t", [Column("v", Kind.INT64), Column("w", Kind.INT64)]))
        assert destination.load(staged_load(tmp_path, made, [{"w": 2}])).rows == 1
        destination.close()
        assert schemas_of(url, "t", "_headwater_loads") == [("public", "_headwater_loads"), ("public", "t")]


def test_a_table_is_not_taken_when_another_program_creates_it_between_check_and_create(
    postgres: PostgresServer,
) -> None:
    class Late(PostgresDestination):
        """The other program is faster."""

        def alter(self, table: str, patch: Patch) -> None:
            late.run(f"CREATE TABLE {table} (v bigint)")
            super().alter(table, patch)

    late = PostgresSubject(postgres, Late)
    late.destination.connect()
    wanted = table_of("t", [Column("v", Kind.INT64)])
    with pytest.raises(TableRefused, match="already exists"):
        late.destination.patch(wanted)
    with pytest.raises(TableNotAllowed):
        late.destination.patch(wanted)
    assert late.destination.tables_created_since(0) == 0
    late.close()


@contextmanager
def locked(subject: PostgresSubject, table: str) -> Iterator[None]:
    """Another session holds the strongest lock of a table."""
    with psycopg.connect(subject.server.url) as connection:
        name = psycopg.sql.Identifier(subject.schema, table)
        connection.execute(psycopg.sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(name))
        yield


def test_other_tables_are_loaded_when_another_session_locks_one(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    subject = PostgresSubject(postgres)
    settings = PostgresSettings(url=postgres.url, schema=subject.schema, lock_timeout_seconds=0.2)
    subject.destination = PostgresDestination("pg", settings)
    subject.destination.connect()
    made = {name: subject.destination.patch(table_of(name, [Column("v", Kind.INT64)])) for name in "tu"}
    load = staged_load(tmp_path, made["t"], [{"v": 1}], id="t")
    with locked(subject, "t"):
        with pytest.raises(TableBusy, match="lock timeout") as caught:
            subject.destination.load(load)
        assert caught.value.retryable
        with pytest.raises(TableBusy):
            subject.destination.patch(table_of("t", [Column("new", Kind.INT64)]))
        assert subject.destination.load(staged_load(tmp_path, made["u"], [{"v": 1}])).rows == 1
    assert subject.destination.load(load).rows == 1
    with locked(subject, "_headwater_loads"), pytest.raises(DestinationUnavailable):
        subject.destination.loaded(["t"])
    subject.close()


def test_a_statement_ends_when_it_takes_too_long(postgres: PostgresServer) -> None:
    settings = PostgresSettings(url=postgres.url, schema="short", statement_timeout_seconds=0.1)
    destination = PostgresDestination("pg", settings)
    destination.connect()
    with pytest.raises(TableBusy, match="statement timeout"):
        destination.execute("SELECT pg_sleep(60)")
    assert destination.execute("SELECT 1") == [(1,)]
    destination.close()
