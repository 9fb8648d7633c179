"""The Redshift destination passes the conformance suite on Postgres and a server that speaks S3."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from headwater.destinations.base import Destination
from headwater.destinations.column_types import Kind
from headwater.destinations.redshift import RedshiftDestination, RedshiftSettings
from headwater.destinations.table import Column, table_of
from headwater.errors import DestinationUnavailable
from headwater.testing.destinations import Subject, staged_load
from tests.destinations.only_not_null import OnlyNotNull
from tests.destinations.redshift_stand_in import PostgresAsRedshift, check
from tests.parts.object_store import ObjectStore
from tests.parts.postgres import PostgresServer

pytestmark = pytest.mark.long


class RedshiftSubject(Subject):
    def __init__(self, server: PostgresServer, store: ObjectStore) -> None:
        self.server, self.store = server, store
        self.schema = f"test {uuid.uuid4().hex}"
        self.prefix = uuid.uuid4().hex
        PostgresAsRedshift.store = store
        self.destination = self.another()

    def another(self) -> Destination:
        url = self.store.url(self.prefix)
        return PostgresAsRedshift(
            "rs", RedshiftSettings(url=self.server.url, schema=self.schema, staging_url=url)
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.server.url, row_factory=dict_row) as connection:
            name = psycopg.sql.Identifier(self.schema, table)
            return connection.execute(psycopg.sql.SQL("SELECT * FROM {}").format(name)).fetchall()

    def run(self, statement: str) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f'SET search_path = "{self.schema}"'.encode())
            connection.execute(statement.encode())

    def unreachable(self) -> Destination:
        settings = RedshiftSettings(url="postgresql://127.0.0.1:1/none", staging_url="s3://none/at-all")
        return RedshiftDestination("away", settings)

    def close(self) -> None:
        super().close()
        self.run(f'DROP SCHEMA "{self.schema}" CASCADE')


class TestRedshift(OnlyNotNull):
    stand_in = "Postgres"
    keyed_table = "CREATE TABLE {} (id bigint PRIMARY KEY, note character varying(65535))"
    strict_table = "CREATE TABLE {} (number bigint NOT NULL, note character varying(65535))"

    @pytest.fixture(autouse=True)
    def servers(self, postgres: PostgresServer, object_store: ObjectStore) -> None:
        self.postgres, self.store = postgres, object_store

    def make(self, tmp_path: Path) -> Subject:
        return RedshiftSubject(self.postgres, self.store)

    def stored(self, name: str) -> str:
        return name.lower()

    def test_a_value_lands_whole_when_it_is_long(self, subject: Subject, staging: Path) -> None:
        """It cannot: Redshift's texts end at 65,535 bytes. So it is kept whole in the rejects."""
        made = subject.destination.patch(table_of("t", [Column("v", Kind.STRING)]))
        rows = [{"v": "é" * 32_767}, {"v": "é" * 32_768}]
        result = subject.destination.load(staged_load(staging, made, rows, first_row=7))
        assert (result.rows, [row.row for row in result.refused]) == (1, [8])
        assert "65535 bytes" in result.refused[0].reason
        assert [len(row["v"]) for row in subject.rows("t")] == [32_767]


@pytest.fixture
def subject(postgres: PostgresServer, object_store: ObjectStore) -> Iterator[RedshiftSubject]:
    subject = RedshiftSubject(postgres, object_store)
    subject.destination.connect()
    yield subject
    subject.close()


def test_no_object_is_left_when_a_load_is_done(subject: RedshiftSubject, tmp_path: Path) -> None:
    made = subject.destination.patch(table_of("t", [Column("v", Kind.INT64)]))
    assert subject.destination.load(staged_load(tmp_path, made, [{"v": 1}])).rows == 1
    assert subject.store.objects(subject.prefix) == []


def test_one_of_two_loads_when_both_try_the_same_at_once(subject: RedshiftSubject, tmp_path: Path) -> None:
    made = subject.destination.patch(table_of("t", [Column("v", Kind.INT64)]))
    load = staged_load(tmp_path, made, [{"v": i} for i in range(500)], id="same")
    results = []

    def attempt() -> None:
        destination = subject.another()
        destination.connect()
        results.append(destination.load(load))
        destination.close()

    threads = [threading.Thread(target=attempt) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.already for result in results) == [False, True, True]
    assert len(subject.rows("t")) == 500


def test_a_retry_is_advised_without_secrets_when_the_object_store_is_unreachable(
    subject: RedshiftSubject, tmp_path: Path
) -> None:
    url = "s3://key:s3cret@bucket/x?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    settings = RedshiftSettings(url=subject.server.url, schema=subject.schema, staging_url=url)
    destination = PostgresAsRedshift("rs", settings)
    destination.connect()
    made = destination.patch(table_of("t", [Column("v", Kind.INT64)]))
    with pytest.raises(DestinationUnavailable, match="the bucket bucket") as caught:
        destination.load(staged_load(tmp_path, made, [{"v": 1}]))
    assert "s3cret" not in str(caught.value)
    destination.close()
    assert subject.rows("t") == []


def test_the_recorded_key_stays_when_its_replacement_fails(
    subject: RedshiftSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [Column("a", Kind.INT64), Column("b", Kind.INT64)]
    made = subject.destination.patch(table_of("t", columns, ["a"]))
    execute = PostgresAsRedshift.execute

    def fail_on_insert(self: PostgresAsRedshift, statement: str) -> Any:
        if statement.startswith("INSERT") and "_headwater_keys" in statement:
            raise DestinationUnavailable("the connection is lost")
        return execute(self, statement)

    monkeypatch.setattr(PostgresAsRedshift, "execute", fail_on_insert)
    with pytest.raises(DestinationUnavailable):
        subject.destination.patch(table_of("t", columns, ["b"]))
    assert subject.destination.table("t") == made


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO NOTHING",
        "INSERT INTO t (a) VALUES (1) RETURNING a",
        "SELECT count(*) FILTER (WHERE a > 1) FROM t",
        "ALTER TABLE t ADD COLUMN a bigint, ADD COLUMN b bigint",
    ],
)
def test_the_check_refuses_when_a_statement_is_only_of_postgres(statement: str) -> None:
    with pytest.raises(AssertionError, match="Redshift"):
        check(statement)
