"""Delta passes the conformance suite, read back by DuckDB's reader of Parquet and by deltalake."""

from __future__ import annotations

import datetime as dt
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater.destinations.base import Destination, Loaded, StreamLoadId, Total
from headwater.destinations.column_types import Kind
from headwater.destinations.lake.delta import DeltaDestination, DeltaSettings
from headwater.destinations.table import Column, table_of
from headwater.errors import DestinationUnavailable, SettingsError
from headwater.testing.destinations import DestinationConformance, Subject, staged_load
from headwater.testing.destinations.subject import by, table
from tests.parts.object_store import KEY, SECRET, ObjectStore


class DeltaSubject(Subject):
    def __init__(self, folder: Path) -> None:
        self.path = folder / "lake"
        self.destination: DeltaDestination = self.another()

    def another(self) -> DeltaDestination:
        return DeltaDestination("delta", DeltaSettings(path=str(self.path)))

    def url(self, table: str) -> str:
        return str(self.path / self.destination.folder_name(table))

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(self.url(table)).to_pyarrow_table().to_pylist()
        return found

    def run(self, statement: str) -> None:
        """Statements of the form `create NAME column:type …`, `rule NAME expression` and `note NAME`."""
        verb, name, *rest = statement.split()
        if verb == "create":
            columns = [column.split(":") for column in rest]
            schema = pa.schema([(column, getattr(pa, type)()) for column, type in columns])
            DeltaTable.create(self.url(name), schema)
            if name == "strict":
                DeltaTable(self.url(name)).alter.add_constraint({"unlucky": "number <> 13"})
        else:
            row = pa.table({"id": pa.array([1], pa.int64()), "note": ["theirs"]})
            write_deltalake(self.url(name), row, mode="append")

    def unreachable(self) -> Destination:
        (self.path.parent / "file").write_text("in the way")
        return DeltaDestination("away", DeltaSettings(path=str(self.path.parent / "file" / "lake")))


class TestDelta(DestinationConformance):
    small_integer = "short"
    keyed_table = "create {} id:int64 note:string"
    note_row = "note {}"
    strict_table = "create {} number:int64 note:string"

    def make(self, tmp_path: Path) -> Subject:
        return DeltaSubject(tmp_path)

    def test_a_users_own_key_stays_when_none_is_configured(self, subject: Subject, staging: Path) -> None:
        pytest.skip("not applicable: a Delta table has no key that its user declares")

    def test_a_users_own_key_is_used_when_it_is_the_configured_one(self, subject: Subject) -> None:
        pytest.skip("not applicable: a Delta table has no key that its user declares")

    def test_a_view_stays_as_it_is_when_an_event_names_it(self, subject: Subject, staging: Path) -> None:
        pytest.skip("not applicable: a folder of Delta tables has no views")


def identifiers(subject: DeltaSubject, table: str) -> dict[str, int]:
    """All transaction identifiers of a table, as its checkpoint has them."""
    delta = DeltaTable(subject.url(table))
    delta.create_checkpoint()
    path = Path(subject.url(table)) / "_delta_log" / f"{delta.version():020d}.checkpoint.parquet"
    found = pq.read_table(path, columns=["txn"]).column(0).to_pylist()
    return {row["appId"]: row["version"] for row in found if row and row["appId"]}


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[DeltaSubject]:
    subject = DeltaSubject(tmp_path)
    subject.destination.connect()
    yield subject
    subject.close()


def stream_load(subject: DeltaSubject, folder: Path, first: int, end: int, source: str = "a" * 32) -> Loaded:
    made = subject.destination.patch(table("t", v=Kind.INT64))
    id = str(StreamLoadId(source, end, first, "b" * 16))
    rows = [{"v": position} for position in range(first, end)]
    return subject.destination.load(staged_load(folder, made, rows, id=id))


class Racing(DeltaDestination):
    """Another pipeline commits between the question whether a load is stored and its commit."""

    other: Callable[[], object] | None = None

    def _rows(self, *arguments: Any) -> Any:
        if self.other is not None:
            other, self.other = self.other, None
            other()
        return super()._rows(*arguments)


@pytest.mark.parametrize("key", [(), ("v",)], ids=["append", "upsert"])
def test_one_stores_it_and_the_other_finds_it_when_two_pipelines_have_the_same_load(
    subject: DeltaSubject, tmp_path: Path, key: tuple[str, ...]
) -> None:
    made = subject.destination.patch(table_of("t", [Column("v", Kind.INT64)], key))
    load = staged_load(tmp_path, made, [{"v": value} for value in range(10)], id="same")
    racing = Racing("delta", DeltaSettings(path=str(subject.path)))
    racing.connect()
    racing.other = lambda: subject.destination.load(load)
    assert racing.load(load) == Loaded(id="same", rows=10, already=True)
    racing.close()
    assert by(subject.rows("t"), "v") == [(value,) for value in range(10)]


def test_every_load_is_stored_when_pipelines_load_one_table_at_once(
    subject: DeltaSubject, tmp_path: Path
) -> None:
    made = subject.destination.patch(table("t", v=Kind.INT64))
    errors: list[Exception] = []

    def run(number: int) -> None:
        destination = subject.another()
        try:
            destination.connect()
            for part in range(4):
                value = 10 * number + part
                destination.load(staged_load(tmp_path, made, [{"v": value}], id=f"load {value}"))
        except Exception as error:
            errors.append(error)
        finally:
            destination.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert by(subject.rows("t"), "v") == [(10 * n + part,) for n in range(4) for part in range(4)]
    assert subject.destination.totals()["t"] == Total(loads=16, rows=16, unmapped=0, refused=0)


def test_adjoining_loads_of_a_stream_are_one_identifier_when_they_are_stored(
    subject: DeltaSubject, tmp_path: Path
) -> None:
    for first, end in ((1, 4), (4, 6), (8, 9), (9, 12), (6, 7)):
        stream_load(subject, tmp_path, first, end)
    runs = {app: version for app, version in identifiers(subject, "t").items() if "/stream/" in app}
    prefix = f"headwater/stream/{'a' * 32}/{'b' * 16}/"
    assert runs == {f"{prefix}{1:016x}": 7, f"{prefix}{8:016x}": 12}

    def has(first: int, end: int, source: str = "a" * 32) -> bool:
        return bool(subject.destination.loaded([str(StreamLoadId(source, end, first, "b" * 16))]))

    assert all(has(*positions) for positions in ((1, 4), (4, 6), (1, 6), (2, 3), (6, 7), (8, 12)))
    assert not any(has(*positions) for positions in ((7, 8), (1, 9), (11, 13), (12, 13)))
    assert not has(1, 4, "c" * 32)
    assert stream_load(subject, tmp_path, 4, 6).already
    found = subject.destination.loaded_between(f"{'a' * 32}{8:016x}", f"{'a' * 32}g")
    assert found == {str(StreamLoadId("a" * 32, 12, 8, "b" * 16))}
    assert by(subject.rows("t"), "v") == [(v,) for v in (*range(1, 7), *range(8, 12))]


def test_loads_are_known_when_delta_has_removed_their_commits(subject: DeltaSubject, tmp_path: Path) -> None:
    made = subject.destination.patch(table("t", v=Kind.INT64))
    first = subject.destination.load(staged_load(tmp_path, made, [{"v": 1}, {"v": 2}], id="old"))
    stream_load(subject, tmp_path, 3, 5)
    identifiers(subject, "t")  # writes a checkpoint
    log = Path(subject.url("t")) / "_delta_log"
    for commit in sorted(log.glob("*.json"))[:-1]:
        commit.unlink()
    subject.destination.close()
    subject.destination.connect()
    again = subject.destination.load(staged_load(tmp_path, made, [{"v": 1}, {"v": 2}], id="old"))
    assert again == msgspec.structs.replace(first, already=True)
    assert stream_load(subject, tmp_path, 3, 5).already
    assert subject.destination.totals()["t"] == Total(loads=2, rows=4, unmapped=0, refused=0)
    assert by(subject.rows("t"), "v") == [(1,), (2,), (3,), (4,)]


def test_another_table_has_no_loads_when_it_stands_in_the_place_of_one(
    subject: DeltaSubject, tmp_path: Path
) -> None:
    made = subject.destination.patch(table("t", v=Kind.INT64))
    load = staged_load(tmp_path, made, [{"v": 1}], id="one")
    subject.destination.load(load)
    shutil.rmtree(subject.url("t"))
    assert subject.destination.loaded(["one"]) == set()
    subject.destination.patch(table("t", v=Kind.INT64))
    assert not subject.destination.load(load).already
    assert by(subject.rows("t"), "v") == [(1,)]


def test_rows_are_in_their_partitions_when_the_settings_name_some(tmp_path: Path) -> None:
    options = DeltaSettings(path=str(tmp_path / "lake"), partition_by=("days(at)", "kind"), sort_by=("v",))
    destination = DeltaDestination("delta", options)
    destination.connect()
    made = destination.patch(table("t", at=Kind.TIMESTAMP, kind=Kind.STRING, v=Kind.INT64))
    assert list(made.columns) == ["at", "kind", "v", "at_day"]
    day = dt.datetime(2026, 11, 16, 23, 59, tzinfo=dt.UTC)
    rows = [
        {"at": day, "kind": "a", "v": 3},
        {"at": day, "kind": "a", "v": 1},
        {"at": day + dt.timedelta(minutes=1), "kind": "a", "v": 2},
        {"kind": "b", "v": 4},
    ]
    destination.load(staged_load(tmp_path, made, rows))
    destination.load(staged_load(tmp_path, made, [{"v": 5}], kinds={"v": Kind.INT64}))
    delta = DeltaTable(str(tmp_path / "lake" / "t"))
    stored = {(row["v"], row["at_day"], row["kind"]) for row in delta.to_pyarrow_table().to_pylist()}
    monday, tuesday = dt.date(2026, 11, 16), dt.date(2026, 11, 17)
    assert stored == {(1, monday, "a"), (3, monday, "a"), (2, tuesday, "a"), (4, None, "b"), (5, None, None)}
    assert {(each["at_day"], each["kind"]) for each in delta.partitions()} == {
        ("2026-11-16", "a"),
        ("2026-11-17", "a"),
        (None, "b"),
        (None, None),
    }
    [two] = [file for file in delta.file_uris() if "at_day=2026-11-16" in file]
    assert pq.read_table(two, columns=["v"], partitioning=None).column(0).to_pylist() == [1, 3]
    destination.close()


def test_a_value_is_kept_beside_when_its_column_is_that_of_a_partition(tmp_path: Path) -> None:
    options = DeltaSettings(path=str(tmp_path / "lake"), partition_by=("days(at)",))
    destination = DeltaDestination("delta", options)
    destination.connect()
    made = destination.patch(table("t", at=Kind.TIMESTAMP))
    at = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
    rows = [{"at": at, "at_day": "never"}]
    kinds = {"at": Kind.TIMESTAMP, "at_day": Kind.STRING}
    assert destination.load(staged_load(tmp_path, made, rows, kinds=kinds)).unmapped == 1
    [row] = DeltaTable(str(tmp_path / "lake" / "t")).to_pyarrow_table().to_pylist()
    assert (row["at_day"], row["_unmapped_data"]) == (dt.date(2026, 11, 16), '{"at_day":"never"}')
    destination.close()


@pytest.mark.parametrize("text", ["week(at)", "days(at", "days)", "a b", ""])
def test_partitions_are_refused_when_they_cannot_be_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="partition_by"):
        DeltaDestination("delta", DeltaSettings(path=str(tmp_path), partition_by=(text,)))


def test_columns_of_nested_types_stay_null_when_an_adopted_table_has_them(
    subject: DeltaSubject, tmp_path: Path
) -> None:
    schema = pa.schema(
        [("v", pa.int64()), ("inner", pa.struct([("a", pa.int64())])), ("many", pa.list_(pa.int64()))]
    )
    DeltaTable.create(subject.url("t"), schema)
    subject.destination.adopt_tables = ("t",)
    made = subject.destination.patch(table("t", v=Kind.INT64, many=Kind.STRING))
    result = subject.destination.load(
        staged_load(
            tmp_path, made, [{"v": 1}, {"v": 2, "many": "[1]"}], kinds={"v": Kind.INT64, "many": Kind.STRING}
        )
    )
    assert result.unmapped == 1
    assert by(subject.rows("t"), "v", "inner", "many", "_unmapped_data") == [
        (1, None, None, None),
        (2, None, None, '{"many":"[1]"}'),
    ]


def test_the_name_of_a_dataset_is_its_path_when_lineage_asks(tmp_path: Path) -> None:
    local = DeltaDestination("delta", DeltaSettings(path=str(tmp_path / "lake")))
    assert local.dataset("Events") == ("file", str(tmp_path / "lake" / "events"))
    remote = DeltaDestination("delta", DeltaSettings(path="s3://bucket/lake/"))
    assert remote.dataset("events") == ("s3://bucket", "lake/events")


def test_one_stores_it_and_the_other_finds_it_when_the_tables_are_on_an_object_store(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    options = DeltaSettings(
        path=f"s3://{object_store.bucket}/{tmp_path.name}",
        storage_options={
            "aws_endpoint": f"http://127.0.0.1:{object_store.port}",
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        },
    )
    destination, racing = DeltaDestination("delta", options), Racing("delta", options)
    destination.connect()
    racing.connect()
    assert destination.names() == []
    made = destination.patch(table("t", v=Kind.INT64))
    load = staged_load(tmp_path, made, [{"v": 1}, {"v": 2}], id="same")
    racing.other = lambda: destination.load(load)
    assert racing.load(load).already
    assert (racing.names(), racing.totals()["t"].rows) == (["t"], 2)
    stored = DeltaTable(f"{options.path}/t", storage_options=options.storage_options).to_pyarrow_table()
    assert sorted(stored.column("v").to_pylist()) == [1, 2]
    racing.close()
    destination.close()


def test_a_retry_is_advised_and_no_secret_is_shown_when_the_object_store_is_unreachable() -> None:
    options = DeltaSettings(
        path="s3://bucket/lake",
        storage_options={
            "aws_endpoint": "http://127.0.0.1:9",
            "aws_access_key_id": "known",
            "aws_secret_access_key": "sesame",
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
            "max_retries": "0",
        },
    )
    destination = DeltaDestination("delta", options)
    with pytest.raises(DestinationUnavailable, match="destination delta") as caught:
        destination.connect()
    assert caught.value.retryable
    assert "sesame" not in str(caught.value)
