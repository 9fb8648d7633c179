"""A real Postgres passes the conformance suite, and what is its own."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from headwater.testing.destinations import DestinationConformance, Subject
from headwater.warehouse.base import Destination
from headwater.warehouse.postgres import PostgresDestination, PostgresSettings
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
