"""Iceberg passes the conformance suite, with a catalog in SQLite and with a REST server."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table as Iceberg
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType

from headwater.destinations.base import Destination, Load, Loaded, StreamLoadId, Total
from headwater.destinations.column_types import Kind
from headwater.destinations.lake.iceberg import IcebergDestination, IcebergSettings
from headwater.destinations.table import Column, table_of
from headwater.errors import DestinationUnavailable, SettingsError, TableRefused
from headwater.testing.destinations import Subject, staged_load
from headwater.testing.destinations.subject import by, table
from tests.destinations.only_not_null import OnlyNotNull
from tests.parts.cache import Missing
from tests.parts.iceberg_rest import IcebergRestServer


class IcebergSubject(Subject):
    def __init__(self, folder: Path, settings: IcebergSettings | None = None) -> None:
        self.folder = folder
        self.settings = settings or IcebergSettings(path=str(folder / "lake"))
        self.destination: IcebergDestination = self.another()

    def another(self) -> IcebergDestination:
        return IcebergDestination("iceberg", self.settings)

    def stored(self, table: str) -> Iceberg:
        name = self.destination.folder_name(table)
        return self.destination.catalog.load_table((self.settings.namespace, name))

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.stored(table).scan().to_arrow().to_pylist()
        return found

    def run(self, statement: str) -> None:
        """Statements of the form `create NAME column:type[!] …` and `note NAME`."""
        verb, name, *rest = statement.split()
        if verb == "create":
            types = {"long": LongType(), "string": StringType()}
            fields = []
            for number, text in enumerate(rest, 1):
                column, type = text.removesuffix("!").split(":")
                fields.append(NestedField(number, column, types[type], required=text.endswith("!")))
            self.destination.catalog.create_table((self.settings.namespace, name), Schema(*fields))
        else:
            row = pa.table({"id": pa.array([1], pa.int64()), "note": ["theirs"]})
            self.stored(name).append(row)

    def unreachable(self) -> Destination:
        (self.folder / "file").write_text("in the way")
        return IcebergDestination("away", IcebergSettings(path=str(self.folder / "file" / "lake")))


class IcebergConformance(OnlyNotNull):
    small_integer = "decimal(4,0)"  # of its whole numbers none is smaller than four bytes
    keyed_table = "create {} id:long note:string"
    note_row = "note {}"
    strict_table = "create {} number:long! note:string"

    def test_a_users_own_key_stays_when_none_is_configured(self, subject: Subject, staging: Path) -> None:
        pytest.skip("not applicable: an Iceberg table has no key that its user declares")

    def test_a_users_own_key_is_used_when_it_is_the_configured_one(self, subject: Subject) -> None:
        pytest.skip("not applicable: an Iceberg table has no key that its user declares")

    def test_a_view_stays_as_it_is_when_an_event_names_it(self, subject: Subject, staging: Path) -> None:
        pytest.skip("not applicable: a catalog in SQLite has no views")


class TestIcebergInSQLite(IcebergConformance):
    def make(self, tmp_path: Path) -> Subject:
        return IcebergSubject(tmp_path)


@pytest.fixture(scope="module")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRestServer]:
    try:
        server = IcebergRestServer(tmp_path_factory.mktemp("rest"))
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.mark.long
class TestIcebergOverRest(IcebergConformance):
    many_rows = 2_000

    @pytest.fixture(autouse=True)
    def server(self, rest_server: IcebergRestServer) -> None:
        self.rest = rest_server

    def make(self, tmp_path: Path) -> Subject:
        name = "".join(letter if letter.isalnum() else "_" for letter in tmp_path.name)
        return IcebergSubject(tmp_path, over_rest(self.rest, name))

    def test_a_view_stays_as_it_is_when_an_event_names_it(self, subject: Subject, staging: Path) -> None:
        pytest.skip("not applicable: the server's catalog in SQLite has no views")


def over_rest(server: IcebergRestServer, namespace: str) -> IcebergSettings:
    return IcebergSettings(
        catalog={"type": "rest", "uri": server.url, "warehouse": server.warehouse}, namespace=namespace
    )


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[IcebergSubject]:
    subject = IcebergSubject(tmp_path)
    subject.destination.connect()
    yield subject
    subject.close()


class Racing(IcebergDestination):
    """Another pipeline commits between the question whether a load is stored and its commit."""

    other: Callable[[], object] | None = None

    def _rows(self, *arguments: Any) -> Any:
        if self.other is not None:
            other, self.other = self.other, None
            other()
        return super()._rows(*arguments)


def race(subject: IcebergSubject, folder: Path, key: tuple[str, ...]) -> None:
    """Two pipelines have the same load; each reads the table before the other commits."""
    made = subject.destination.patch(table_of("t", [Column("v", Kind.INT64)], key))
    load = staged_load(folder, made, [{"v": value} for value in range(10)], id="same")
    racing = Racing("iceberg", subject.settings)
    racing.connect()
    racing.other = lambda: subject.destination.load(load)
    assert racing.load(load) == Loaded(id="same", rows=10, already=True)
    racing.close()
    assert by(subject.rows("t"), "v") == [(value,) for value in range(10)]


@pytest.mark.parametrize("key", [(), ("v",)], ids=["append", "upsert"])
def test_one_stores_it_and_the_other_finds_it_when_two_pipelines_have_the_same_load(
    subject: IcebergSubject, tmp_path: Path, key: tuple[str, ...]
) -> None:
    race(subject, tmp_path, key)
    files = {Path(file.file_path).name for file in data_files(subject)}
    assert {path.name for path in (tmp_path / "lake").rglob("*.parquet")} == files  # no orphan of the loser


@pytest.mark.long
@pytest.mark.parametrize("key", [(), ("v",)], ids=["append", "upsert"])
def test_one_stores_it_and_the_other_finds_it_when_the_catalog_is_a_rest_server(
    rest_server: IcebergRestServer, tmp_path: Path, key: tuple[str, ...]
) -> None:
    subject = IcebergSubject(tmp_path, over_rest(rest_server, f"race_{len(key)}"))
    subject.destination.connect()
    race(subject, tmp_path, key)
    place = f"{rest_server.warehouse}/race_{len(key)}/t".removeprefix("file://")
    assert subject.destination.dataset("t") == ("file", place)
    subject.close()


def data_files(subject: IcebergSubject, name: str = "t") -> list[Any]:
    return [task.file for task in subject.stored(name).scan().plan_files()]


def test_every_load_is_stored_when_pipelines_load_one_table_at_once(
    subject: IcebergSubject, tmp_path: Path
) -> None:
    made = subject.destination.patch(table("t", v=Kind.INT64))
    errors: list[Exception] = []

    def run(number: int) -> None:
        destination = subject.another()
        try:
            destination.connect()
            for part in range(3):
                value = 10 * number + part
                destination.load(staged_load(tmp_path, made, [{"v": value}], id=f"load {value}"))
        except Exception as error:
            errors.append(error)
        finally:
            destination.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert by(subject.rows("t"), "v") == [(10 * n + part,) for n in range(3) for part in range(3)]
    assert subject.destination.totals()["t"] == Total(loads=9, rows=9, unmapped=0, refused=0)


def stream_load(subject: IcebergSubject, folder: Path, first: int, end: int) -> Loaded:
    made = subject.destination.patch(table("t", v=Kind.INT64))
    id = str(StreamLoadId("a" * 32, end, first, "b" * 16))
    rows = [{"v": position} for position in range(first, end)]
    return subject.destination.load(staged_load(folder, made, rows, id=id))


def test_loads_are_known_when_their_snapshots_have_expired(subject: IcebergSubject, tmp_path: Path) -> None:
    made = subject.destination.patch(table("t", v=Kind.INT64))
    first = subject.destination.load(staged_load(tmp_path, made, [{"v": 1}, {"v": 2}], id="old"))
    for positions in ((3, 5), (5, 6), (6, 8)):
        stream_load(subject, tmp_path, *positions)
    stored = subject.stored("t")
    stored.maintenance.expire_snapshots().older_than(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).commit()
    assert len(subject.stored("t").metadata.snapshots) == 1
    again = subject.destination.load(staged_load(tmp_path, made, [{"v": 1}, {"v": 2}], id="old"))
    assert again == msgspec.structs.replace(first, already=True)
    assert stream_load(subject, tmp_path, 3, 5).already
    assert stream_load(subject, tmp_path, 3, 8).already
    runs = [name for name in stored.properties if name.startswith("headwater/stream/")]
    assert runs == [f"headwater/stream/{'a' * 32}/{'b' * 16}/{3:016x}"]
    assert subject.destination.totals()["t"] == Total(loads=4, rows=7, unmapped=0, refused=0)
    assert by(subject.rows("t"), "v") == [(v,) for v in range(1, 8)]


@pytest.mark.parametrize("key", [(), ("v",)], ids=["append", "upsert"])
def test_rows_are_in_their_partitions_when_the_settings_name_some(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    settings = IcebergSettings(path=str(tmp_path / "lake"), partition_by=("days(at)", "kind"), sort_by=("v",))
    subject = IcebergSubject(tmp_path, settings)
    subject.destination.connect()
    columns = {"at": Kind.TIMESTAMP, "kind": Kind.STRING, "v": Kind.INT64}
    made = subject.destination.patch(table_of("t", [Column(*each) for each in columns.items()], key))
    assert list(made.columns) == ["at", "kind", "v"]
    day = dt.datetime(2026, 11, 16, 23, 59, tzinfo=dt.UTC)
    rows = [
        {"at": day, "kind": "a", "v": 3},
        {"at": day, "kind": "a", "v": 1},
        {"at": day + dt.timedelta(minutes=1), "kind": "a", "v": 2},
        {"kind": "b", "v": 4},
    ]
    subject.destination.load(staged_load(tmp_path, made, rows))
    subject.destination.load(staged_load(tmp_path, made, [{"v": 5}, {"v": 1}], kinds={"v": Kind.INT64}))
    monday, tuesday = dt.date(2026, 11, 16), dt.date(2026, 11, 17)
    again = [] if key else [(None, None, 1)]
    expected = [
        (monday, "a", 1),
        (tuesday, "a", 2),
        (monday, "a", 3),
        (None, "b", 4),
        (None, None, 5),
        *again,
    ]
    found = [(row["at"] and row["at"].date(), row["kind"], row["v"]) for row in subject.rows("t")]
    assert sorted(found, key=str) == sorted(expected, key=str)
    partitions = {(file.partition[0], file.partition[1]) for file in data_files(subject)}
    since = dt.date(1970, 1, 1)
    assert partitions == {
        ((monday - since).days, "a"),
        ((tuesday - since).days, "a"),
        (None, "b"),
        (None, None),
    }
    [two] = [file for file in data_files(subject) if file.partition[0] == (monday - since).days]
    path = two.file_path.removeprefix("file://")
    in_order = pq.read_table(path, columns=["v"], partitioning=None).column(0).to_pylist()
    assert sorted(in_order) == [1, 3]
    assert key or in_order == [1, 3]  # rows are sorted where they are appended
    subject.close()


def test_a_table_is_refused_when_its_partition_is_no_time(tmp_path: Path) -> None:
    settings = IcebergSettings(path=str(tmp_path / "lake"), partition_by=("days(at)",))
    destination = IcebergDestination("iceberg", settings)
    destination.connect()
    with pytest.raises(TableRefused, match=r"days\(at\)"):
        destination.patch(table("t", at=Kind.STRING))
    assert list(destination.patch(table("u", v=Kind.INT64)).columns) == ["v", "at"]
    destination.close()


def test_only_files_with_one_of_the_keys_are_written_again_when_rows_are_replaced(
    subject: IcebergSubject, tmp_path: Path
) -> None:
    made = subject.destination.patch(
        table_of("t", [Column("k", Kind.INT64), Column("v", Kind.STRING), Column("w", Kind.STRING)], ["k"])
    )
    for first in (0, 100, 200):
        rows = [{"k": first + i, "v": "old", "w": "kept"} for i in range(3)]
        subject.destination.load(staged_load(tmp_path, made, rows))
    before = {file.file_path for file in data_files(subject)}
    subject.destination.load(staged_load(tmp_path, made, [{"k": 101, "v": "new"}, {"k": 7, "v": "new"}]))
    after = {file.file_path for file in data_files(subject)}
    assert len(before & after) == 2
    changed = [(row["k"], row["w"]) for row in subject.rows("t") if row["v"] == "new"]
    assert sorted(changed) == [(7, None), (101, "kept")]
    assert len(subject.rows("t")) == 10


def test_nothing_is_kept_when_a_commit_is_refused(
    subject: IcebergSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = subject.destination.patch(table("t", v=Kind.INT64))
    monkeypatch.setattr("headwater.destinations.lake.lake_destination.COMMIT_TRIES", 2)
    monkeypatch.setattr(
        type(subject.destination.catalog), "commit_table", lambda *a, **b: _refused(), raising=True
    )
    with pytest.raises(DestinationUnavailable, match="other programs commit"):
        subject.destination.load(staged_load(tmp_path, made, [{"v": 1}], id="one"))
    monkeypatch.undo()
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    assert subject.rows("t") == []


def _refused() -> Any:
    raise CommitFailedException("another program was quicker")


def test_columns_of_nested_types_stay_when_rows_of_an_adopted_table_change(
    subject: IcebergSubject, tmp_path: Path
) -> None:
    schema = Schema(
        NestedField(1, "v", LongType(), required=False),
        NestedField(2, "many", ListType(3, IntegerType(), element_required=False), required=False),
        NestedField(4, "note", StringType(), required=False),
    )
    stored = subject.destination.catalog.create_table(("headwater", "t"), schema)
    stored.append(pa.table({"v": [1], "many": pa.array([[1, 2]], pa.list_(pa.int32())), "note": ["theirs"]}))
    subject.destination.adopt_tables = ("t",)
    columns = {"v": Kind.INT64, "many": Kind.STRING, "note": Kind.STRING}
    made = subject.destination.patch(table_of("t", [Column(*each) for each in columns.items()], ["v"]))
    rows = [{"v": 1, "note": "ours"}, {"v": 2, "many": "[1]"}]
    assert subject.destination.load(staged_load(tmp_path, made, rows, kinds=columns)).unmapped == 1
    assert by(subject.rows("t"), "v", "many", "note", "_unmapped_data") == [
        (1, [1, 2], "ours", None),
        (2, None, None, '{"many":"[1]"}'),
    ]


def test_the_name_of_a_dataset_is_its_place_when_lineage_asks(tmp_path: Path) -> None:
    local = IcebergDestination("iceberg", IcebergSettings(path=str(tmp_path / "lake")))
    assert local.dataset("Events") == ("file", str(tmp_path / "lake" / "headwater" / "events"))
    catalog = {"type": "rest", "uri": "https://me:sesame@catalog.example:8443/api", "warehouse": "prod"}
    by_name = IcebergDestination("iceberg", IcebergSettings(catalog=catalog, namespace="web.raw"))
    assert by_name.dataset("events") == ("https://catalog.example:8443/api", "web.raw.events")
    assert local.other_names("Events") == [(f"file:{tmp_path / 'lake'}", "headwater.events")]
    placed = IcebergSettings(catalog=catalog, path="s3://bucket/lake")
    in_place = IcebergDestination("iceberg", placed)
    assert in_place.dataset("e") == ("s3://bucket", "lake/headwater/e")
    assert in_place.other_names("e") == [("https://catalog.example:8443/api", "headwater.e")]


@pytest.mark.parametrize("settings", [IcebergSettings(), IcebergSettings(path="s3://bucket/lake")])
def test_a_catalog_is_asked_for_when_the_settings_name_none(settings: IcebergSettings) -> None:
    with pytest.raises(SettingsError, match="catalog"):
        IcebergDestination("iceberg", settings)


def test_a_retry_is_advised_and_no_secret_is_shown_when_the_catalog_is_unreachable() -> None:
    catalog = {"type": "rest", "uri": "http://127.0.0.1:9", "token": "sesame"}
    destination = IcebergDestination("iceberg", IcebergSettings(catalog=catalog))
    with pytest.raises(DestinationUnavailable, match="destination iceberg") as caught:
        destination.connect()
    assert caught.value.retryable
    assert "sesame" not in str(caught.value)


def test_the_catalog_of_a_local_folder_is_read_by_others_when_it_is_made(
    subject: IcebergSubject, tmp_path: Path
) -> None:
    made = subject.destination.patch(table("t", v=Kind.INT64))
    load: Load = staged_load(tmp_path, made, [{"v": 1}])
    subject.destination.load(load)
    catalog = load_catalog("headwater", type="sql", uri=f"sqlite:///{tmp_path / 'lake' / 'catalog.db'}")
    assert catalog.load_table(("headwater", "t")).scan().to_arrow().column("v").to_pylist() == [1]
    catalog.close()
