"""The Snowflake destination passes the conformance suite on fakesnow, through Snowflake's own client."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("snowflake.connector", reason="missing: pip install 'headwater[snowflake]'")

from headwater.destinations.base import Destination
from headwater.destinations.column_types import Kind
from headwater.destinations.snowflake import SnowflakeDestination, SnowflakeSettings
from headwater.testing.destinations import Subject
from tests.destinations.only_not_null import OnlyNotNull
from tests.parts.snowflake_stand_in import FakeSnow

# the first test may have to install the stand-in's environment
pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500)]


class SnowflakeSubject(Subject):
    def __init__(self, server: FakeSnow) -> None:
        self.server, self.schema = server, f"test_{uuid.uuid4().hex}"
        self.destination = self.another()

    def another(self) -> Destination:
        return SnowflakeDestination("sf", self.settings(self.server.parameters))

    def settings(self, parameters: dict[str, str | int | bool]) -> SnowflakeSettings:
        return SnowflakeSettings(
            account="fakesnow",
            user="fake",
            password="snow",
            database="headwater",
            schema=self.schema,
            login_timeout_seconds=5,
            parameters=parameters,
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        assert isinstance(self.destination, SnowflakeDestination)
        made = self.destination.table(table)
        assert made is not None
        times = {name for name, column in made.columns.items() if column.kind is Kind.TIMESTAMP}
        # times as text: the client cannot read what fakesnow sends for one that is NULL
        quoted = {name: self.destination.dialect.quoted(name) for name in made.columns}
        wanted = ", ".join(f"{q}::text" if name in times else q for name, q in quoted.items())
        found = self.destination.execute(f"SELECT {wanted} FROM {self.destination.relation(table)}")
        rows = [dict(zip(made.columns, row, strict=True)) for row in found]
        return [
            {name: dt.datetime.fromisoformat(v) if name in times and v else v for name, v in row.items()}
            for row in rows
        ]

    def run(self, statement: str) -> None:
        assert isinstance(self.destination, SnowflakeDestination)
        self.destination.execute(statement)

    def unreachable(self) -> Destination:
        settings = self.settings({"host": "127.0.0.1", "port": 1, "protocol": "http"})
        return SnowflakeDestination("away", settings)


class TestSnowflake(OnlyNotNull):
    stand_in = "fakesnow"
    small_integer = "NUMBER(4,0)"

    @pytest.fixture(autouse=True)
    def server(self, fakesnow: FakeSnow) -> None:
        self.fakesnow = fakesnow

    def make(self, tmp_path: Path) -> Subject:
        return SnowflakeSubject(self.fakesnow)

    def stored(self, name: str) -> str:
        return name.lower()

    def bare_type(self, sql_type: str) -> str:
        names = {"NUMBER(38,0)": "bigint", "NUMBER(38,18)": "numeric(38,18)"}
        return names.get(sql_type, sql_type.lower())
