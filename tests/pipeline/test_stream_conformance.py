"""The cases of batch mode, through both modes and on every product: in the end the tables are the same."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from headwater.destinations.base import load_destination
from headwater.destinations.clickhouse.sql import ROW_WITHOUT_KEY
from headwater.destinations.sql.sql_destination import SqlDestination
from headwater.destinations.table import Table
from headwater.settings import Settings
from tests.parts.clickhouse import ClickHouseEngine
from tests.parts.postgres import PostgresServer
from tests.pipeline.rig import BROWSER_KEY
from tests.pipeline.stream_rig import StreamRig, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # the first test of a product waits for all of its cases

# Everything before the load is the same for all products, and the destination suites run on each of them.
PRODUCTS = ["duckdb", *(pytest.param(name, marks=pytest.mark.long) for name in ("postgres", "clickhouse"))]
MOMENT = "2026-11-16T10:00:00.123456Z"
AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
VALUES = {"bool": True, "int": 7, "float": 2.5, "text": "many", "time": MOMENT}
PAIRS = list(itertools.product(VALUES, VALUES))
HOSTILE = [
    "robert'); DROP TABLE events; --",
    'quote " and "" two',
    "back`tick\\slash",
    "${env.HOME} {{ x }} %s $1",
]

# By name: settings of the destination, and events batch after batch.
CASES: dict[str, tuple[dict[str, Any], list[list[Any]]]] = {
    # the only table's columns drift from batch to batch
    "drift": (
        {"primary_key": ["id"]},
        [
            [
                {"id": "e1", "_timestamp": MOMENT, "user": {"id": 7, "name": "Ann"}, "a": 1, "tags": ["a"]},
                {"id": "e2", "_timestamp": MOMENT, "user": {"id": 8}, "a": 2, "new": True, "big": 2**70},
                {"id": "e1", "b": "first"},
            ],
            [{"id": "e1", "a": "many", "c": True}, {"id": "e3", "a": 2.0}, {"id": "e2", "a": True}],
            [{"id": "e4", "a": None, "d": {}}, {}],
        ],
    ),
    # tables by name; some events are skipped, some are none; all pairs of kinds; names that mean harm
    "tables": (
        {"table_name_template": "{{ event_type | lower | default('events') }}"},
        [
            [
                {"event_type": "Page View", "n": 1},
                {"event_type": "buy", "n": "x"},
                {"n": 3.5},
                {"event_type": "", "n": 4},
                b'{"event_type": "buy", "n": 5',
                b"[]",
                {"event_type": "Page View", "n": 6, "late": True},
                {"event_type": "kinds"} | {f"{a}_{b}": VALUES[a] for a, b in PAIRS},
                {"event_type": "kinds"} | {f"{a}_{b}": VALUES[b] for a, b in PAIRS},
                {"event_type": HOSTILE[0], "n": 7} | {name: name for name in HOSTILE},
            ],
            [{"event_type": "buy", "n": 8}, {"event_type": "kinds", "int_int": "no number"}],
        ],
    ),
    # enrichment, mapping, a table with too few columns
    "steps": (
        {
            "enrichment": [{"name": "user_agent_parse", "from": "/agent", "to": "/parsed"}],
            "mappings": {
                "fields": [
                    {"src": "/user/mail", "action": "remove"},
                    {"src": "/price", "dst": "/money/value", "action": "move"},
                    {"dst": "origin", "action": "constant", "value": "shop"},
                ]
            },
            "max_columns": 12,
        },
        [
            [
                {"api_key": BROWSER_KEY, "source_ip": "8.8.8.8", "eventn_ctx": {"user_agent": AGENT}},
                {"api_key": "web", "source_ip": "8.8.8.8", "agent": AGENT},
                {"user": {"mail": "a@b", "id": 1}, "price": 1.5},
                {"x1": 1, "x2": 2, "x3": 3, "x4": 4, "x5": 5},
            ]
        ],
    ),
}


@dataclass
class Conformance:
    """All cases through both modes into one product: what costs time is a query, not an event."""

    product: str
    rig: StreamRig
    place: dict[str, str]
    engine: ClickHouseEngine | None = None

    def run(self) -> None:
        batch, stream = self.settings("batch"), self.settings("stream")
        with self.rig.stream(stream):
            for number in range(max(len(rounds) for _, rounds in CASES.values())):
                for name, (_, rounds) in CASES.items():
                    if number < len(rounds):
                        self.rig.file(rounds[number], token=name)
                # a cycle each: files that wait together are loaded together
                report = self.rig.cycle(batch)
                assert report.is_complete, report.errors
                self.put(stream, number)

    def put(self, settings: Settings, number: int) -> None:
        """A round of all cases that have so many, and wait until it is done."""
        for name, (_, rounds) in CASES.items():
            if number < len(rounds):
                self.rig.put(settings, *rounds[number], id=f"stream-{name}")
        for name, (_, rounds) in CASES.items():
            end = 1 + sum(map(len, rounds[: number + 1]))
            until(lambda: self.rig.cursor(f"stream-{name}").position == end, name)  # noqa: B023

    def settings(self, mode: str) -> Settings:
        own = [
            {"id": f"{mode}-{name}", "type": self.product, "mode": mode, "only_keys": [name]}
            | {"options": self.options(f"{mode}_{name}")}
            | settings
            for name, (settings, _) in CASES.items()
        ]
        tokens = [{"id": name, "client_secret": BROWSER_KEY, "server_secret": f"s-{name}"} for name in CASES]
        made = self.rig.settings if mode == "batch" else self.rig.stream_settings
        return made(*own, tokens=tokens)

    def options(self, name: str) -> dict[str, str]:
        return {key: f"{value}_{name}" if key != "url" else value for key, value in self.place.items()}

    def tables(self, mode: str, name: str) -> dict[str, tuple[dict[str, str], list[str]]]:
        """Types and rows of all tables in the ledger."""
        [settings] = [each for each in self.settings(mode).destinations if each.id == f"{mode}-{name}"]
        destination = load_destination(settings)
        destination.connect()
        found = {}
        try:
            for table in destination.totals():
                structure = destination.table(table)
                assert structure is not None
                types = {column.name: column.sql_type for column in structure.columns.values()}
                if self.engine is None:
                    assert isinstance(destination, SqlDestination)
                    stored = destination.execute(f"SELECT * FROM {destination.relation(table)}")
                    rows = [dict(zip(types, row, strict=True)) for row in stored]
                else:
                    rows = self.rows_of_clickhouse(settings.options["database"], structure)
                found[table] = types, sorted(repr(sorted(row.items())) for row in rows)
        finally:
            destination.close()
        return found

    def rows_of_clickhouse(self, database: str, table: Table) -> list[dict[str, Any]]:
        assert self.engine is not None
        final = "FINAL" if table.primary_key else ""
        hidden = (
            f"EXCEPT {ROW_WITHOUT_KEY}" if table.primary_key else ""
        )  # it identifies the load of a row without its key
        return self.engine.query(f"SELECT * {hidden} FROM `{database}`.`{table.name}` {final}")

    def rejects(self, mode: str, name: str) -> list[tuple[str, str]]:
        found = self.rig.rejects(f"{mode}-{name}")
        return sorted((each.error, bytes(each.event).decode() or each.malformed_event) for each in found)


@pytest.fixture(scope="module", params=PRODUCTS)
def conformance(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Conformance]:
    own = f"test_{uuid.uuid4().hex[:12]}"
    with StreamRig(spark, tmp_path_factory.mktemp("conformance")) as rig:
        made = Conformance(request.param, rig, {"path": str(rig.folder / "dwh")})
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            made.place = {"url": server.url, "schema": own}
        elif request.param == "clickhouse":
            made.engine = request.getfixturevalue("clickhouse")
            assert made.engine is not None
            made.place = {"url": made.engine.url, "database": own}
        made.run()
        yield made


@pytest.mark.parametrize("name", CASES)
def test_the_tables_are_the_same_in_the_end_when_events_come_by_stream(
    conformance: Conformance, name: str
) -> None:
    batch, stream = conformance.tables("batch", name), conformance.tables("stream", name)
    assert stream.keys() == batch.keys()
    assert batch
    for table, (types, rows) in batch.items():
        assert stream[table] == (types, rows), table
        assert rows
    assert conformance.rejects("stream", name) == conformance.rejects("batch", name)
