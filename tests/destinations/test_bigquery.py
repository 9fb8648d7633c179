"""The BigQuery destination on bqemulator: what of the conformance suite the stand-in can show."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.bigquery", reason="missing: pip install 'headwater[bigquery]'")

from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from headwater.destinations.base import Destination
from headwater.destinations.bigquery import BigQueryDestination, BigQuerySettings
from headwater.destinations.column_types import Kind
from headwater.destinations.table import Column, table_of
from headwater.errors import DestinationUnavailable, LoadRefused, TableRefused
from headwater.testing.destinations import Subject
from headwater.testing.destinations.subject import by, load
from headwater.testing.destinations.tables import HOSTILE
from tests.destinations.only_not_null import OnlyNotNull
from tests.parts.bigquery_emulator import BigQueryEmulator

# the first test may have to install the stand-in's environment
pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500)]


class BigQuerySubject(Subject):
    def __init__(self, server: BigQueryEmulator) -> None:
        self.server, self.dataset = server, f"test_{uuid.uuid4().hex}"
        self.destination = self.another()
        self.client = bigquery.Client(
            project="headwater",
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            client_options=ClientOptions(api_endpoint=server.url),
        )

    def close(self) -> None:
        super().close()
        self.client.close()  # type: ignore[no-untyped-call]

    def another(self) -> Destination:
        return BigQueryDestination("bq", self.settings(self.server.url))

    def settings(self, url: str, timeout: int = 60) -> BigQuerySettings:
        return BigQuerySettings(
            project="headwater", dataset=self.dataset, api_endpoint=url, timeout_seconds=timeout
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        name = f"`headwater`.`{self.dataset}`.`{table}`"
        return [dict(row.items()) for row in self.client.query(f"SELECT * FROM {name}").result()]

    def run(self, statement: str) -> None:
        assert isinstance(self.destination, BigQueryDestination)
        self.destination.execute(statement.replace("{dataset}", self.dataset))

    def unreachable(self) -> Destination:
        return BigQueryDestination("away", self.settings("http://127.0.0.1:1", 1))


class TestBigQuery(OnlyNotNull):
    stand_in = "bqemulator"
    small_integer = "numeric(4,0)"
    keyed_table = (
        "CREATE TABLE `headwater`.`{{dataset}}`.`{}` (id INT64, note STRING, PRIMARY KEY (id) NOT ENFORCED)"
    )
    their_table = "CREATE TABLE `headwater`.`{{dataset}}`.`{}` (id INT64, note STRING)"
    note_row = "INSERT INTO `headwater`.`{{dataset}}`.`{}` (id, note) VALUES (1, 'theirs')"
    view = "CREATE VIEW `headwater`.`{{dataset}}`.`{}` AS SELECT * FROM `headwater`.`{{dataset}}`.`{}`"
    strict_table = "CREATE TABLE `headwater`.`{{dataset}}`.`{}` (number INT64 NOT NULL, note STRING)"

    @pytest.fixture(autouse=True)
    def server(self, bigquery_emulator: BigQueryEmulator) -> None:
        self.emulator = bigquery_emulator

    def make(self, tmp_path: Path) -> Subject:
        return BigQuerySubject(self.emulator)

    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_name_is_only_a_name_when_it_is_hostile(
        self, subject: Subject, staging: Path, name: str
    ) -> None:
        """BigQuery takes letters, digits and underscores; what it would not take never gets there."""
        wanted = table_of(name, [Column(name, Kind.STRING), Column("plain", Kind.INT64)], [name])
        if not name.isalpha():
            with pytest.raises(TableRefused, match="in BigQuery"):
                subject.destination.patch(wanted)
            return
        made = subject.destination.patch(wanted)
        assert made.primary_key == (name,)
        load(subject, staging, made, [{name: name, "plain": 1}])
        assert by(subject.rows(name), name, "plain") == [(name, 1)]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("invalidQuery", LoadRefused),
        ("invalid", LoadRefused),
        ("jobBackendError", DestinationUnavailable),
        ("tableUnavailable", DestinationUnavailable),
        ("timeout", DestinationUnavailable),
        ("", DestinationUnavailable),
    ],
)
def test_only_errors_of_statements_and_values_refuse_a_load_when_the_service_gives_a_reason(
    reason: str, expected: type[Exception]
) -> None:
    destination = BigQueryDestination("bq", BigQuerySettings(project="p", dataset="d"))
    destination._client = bigquery.Client(
        project="p",
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
    )
    with pytest.raises(expected), destination._connected():
        raise exceptions.BadRequest(  # type: ignore[no-untyped-call]
            "the job failed", errors=[{"reason": reason, "message": "the job failed"}] if reason else ()
        )
