"""Iceberg: tables of a catalog, on a local disk or an object store.

pyiceberg reads, writes and commits. Each load is one snapshot, whose commit also sets the table properties
that are the ledger (iceberg_log.py). A commit holds for the very snapshot that was read, and pyiceberg never
retries it on a newer one.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import quote, urlsplit

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField as IcebergPartition
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table import Table as Iceberg
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headwater.destinations.base import Capabilities, Loaded, Total
from headwater.destinations.column_types import Kind, kind_of_sql
from headwater.destinations.lake.iceberg_log import IcebergLedger
from headwater.destinations.lake.iceberg_maintenance import (
    remove_unnamed_files,
    rewritten_files,
    small_files,
)
from headwater.destinations.lake.iceberg_rows import added_files, merged_files, remove_files
from headwater.destinations.lake.lake_destination import (
    COMMIT_TRIES,
    CommitConflict,
    LakeDestination,
    LakeTable,
)
from headwater.destinations.lake.partitions import PartitionField, parse_partitions
from headwater.destinations.refused_rows import RowsRefused
from headwater.destinations.sql.errors import CHANGED, first_line
from headwater.destinations.table import UNMAPPED, Column, Patch, Table
from headwater.errors import DestinationUnavailable, LoadRefused, SettingsError, TableRefused, WarehouseError
from headwater.settings import PATH

_TYPES: dict[str, tuple[IcebergType, str]] = {
    "string": (StringType(), "VARCHAR"),
    "double": (DoubleType(), "DOUBLE"),
    "float": (FloatType(), "FLOAT"),
    "long": (LongType(), "BIGINT"),
    "int": (IntegerType(), "INTEGER"),
    "boolean": (BooleanType(), "BOOLEAN"),
    "binary": (BinaryType(), "BLOB"),
    "date": (DateType(), "DATE"),
    "time": (TimeType(), "TIME"),
    "uuid": (UUIDType(), "UUID"),
    "timestamptz": (TimestamptzType(), "TIMESTAMPTZ"),
    "timestamp": (TimestampType(), "TIMESTAMP"),
}
"""Names of types, with the type of the format and DuckDB's name."""
_OTHER_NAMES = {"bigint": "long", "integer": "int", "real": "float", "text": "string", "bool": "boolean"}
_DECIMAL = re.compile(r"(?:decimal|numeric|dec)\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_KINDS = {"long": Kind.INT64, "int": Kind.INT64}
_CREATED, _KEY = "headwater.created_seconds", "headwater.primary_key"
_OF_NEW_TABLES = {
    # a micro-batch adds a manifest: without merging there would be one for each load
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.target-file-size-bytes": str(128 * 1024 * 1024),
}
_ONE_TRY = {"commit.retry.num-retries": "0"}


class IcebergSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `iceberg`."""

    path: Annotated[
        str,
        msgspec.Meta(
            description="A local folder for the tables and for a catalog in SQLite; no service is needed. "
            "With `catalog`: where new tables are stored, as a URL such as `s3://bucket/…`."
        ),
        PATH,
    ] = ""
    catalog: Annotated[
        dict[str, str],
        msgspec.Meta(
            description="Properties of pyiceberg for a catalog, such as `type: rest`, `uri`, `warehouse`, "
            "`token`, `name` (of a catalog in SQL), and those of the object store, such as `s3.endpoint`."
        ),
    ] = {}
    namespace: Annotated[
        str, msgspec.Meta(description="The namespace of the tables; created if missing.")
    ] = "headwater"
    partition_by: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            description="Partitions of new tables: columns, or `years(c)`, `months(c)`, `days(c)`, "
            "`hours(c)`."
        ),
    ] = ()
    sort_by: Annotated[
        tuple[str, ...], msgspec.Meta(description="Columns by which appended rows are sorted within a load.")
    ] = ()


class IcebergLakeTable(LakeTable):
    """The current snapshot of an Iceberg table."""

    def __init__(self, table: Iceberg, name: str, errors: str) -> None:
        self._table, self._id = table, errors
        self._ledger = IcebergLedger(table.metadata)
        properties = table.metadata.properties
        self.is_ours = _CREATED in properties
        self.created_seconds = int(properties.get(_CREATED, 0))
        snapshot = table.metadata.current_snapshot_id
        self.version = str(snapshot) if snapshot is not None else ""
        columns = {}
        for field in table.schema().fields:
            type = _type_name(field.field_type)
            kind = Kind.JSON if field.name == UNMAPPED else kind_of_sql(type, _KINDS)
            columns[field.name] = Column(field.name, kind, type)
        key = msgspec.json.decode(properties.get(_KEY, "[]"), type=tuple[str, ...])
        self.structure = Table(name, columns, key)

    def entry(self, id: str) -> Loaded | None:
        return self._ledger.entry(id)

    def loads_between(self, low: str, high: str) -> set[str]:
        return self._ledger.identifiers.loads_between(low, high)

    def total(self) -> Total:
        return self._ledger.identifiers.total()

    def change(self, patch: Patch) -> None:
        with self._transaction() as changes:
            if patch.add:
                with changes.update_schema() as schema:
                    for column in patch.add:
                        schema.add_column((column.name,), _iceberg_type(column.sql_type))
            if patch.drop_key or patch.set_key:
                changes.set_properties({_KEY: msgspec.json.encode(patch.set_key).decode()})

    def append(self, rows: pa.RecordBatchReader, loaded: Loaded) -> None:
        with self._transaction() as changes:
            files = added_files(self._table, self._checked(rows))
            with _removed_on_error(self._table, files):
                summary = self._ledger.summary(loaded)
                with changes.update_snapshot(snapshot_properties=summary).merge_append() as snapshot:
                    for file in files:
                        snapshot.append_data_file(file)
                changes.set_properties(self._ledger.to_enter(loaded))
                changes.commit_transaction()

    def upsert(self, rows: pa.RecordBatchReader, key: Sequence[str], loaded: Loaded) -> None:
        with self._transaction() as changes:
            fresh, replaced = merged_files(self._table, self._checked(rows), key)
            with _removed_on_error(self._table, fresh):
                summary = self._ledger.summary(loaded)
                with changes.update_snapshot(snapshot_properties=summary).overwrite() as snapshot:
                    for file in replaced:
                        snapshot.delete_data_file(file)
                    for file in fresh:
                        snapshot.append_data_file(file)
                changes.set_properties(self._ledger.to_enter(loaded))
                changes.commit_transaction()

    def enter(self, loaded: Loaded) -> None:
        with self._transaction() as changes:
            summary = self._ledger.summary(loaded)
            with changes.update_snapshot(snapshot_properties=summary).fast_append():
                pass
            changes.set_properties(self._ledger.to_enter(loaded))

    def join_files(self) -> tuple[int, int]:
        joined, written = 0, 0
        with translated(self._id):
            for small in small_files(self._table):
                joined_files = rewritten_files(self._table, small)
                try:
                    self._replace(small, joined_files)
                except CommitConflict:
                    remove_files(self._table, joined_files)
                    raise
                joined += len(small)
                written += len(joined_files)
        return joined, written

    def _replace(self, small: Sequence[FileScanTask], large: Sequence[DataFile]) -> None:
        """Commits joined files: on a newer snapshot too, as long as it has the small files unchanged."""
        wanted = {task.file.file_path: _deletes(task) for task in small}
        for _ in range(COMMIT_TRIES):
            self._table = self._table.refresh()
            now = [task for task in self._table.scan().plan_files() if task.file.file_path in wanted]
            if {task.file.file_path: _deletes(task) for task in now} != wanted:
                raise CommitConflict("rows of the joined files have changed")
            try:
                with self._transaction() as changes:
                    summary = {"headwater.maintenance": "joined small files"}
                    with changes.update_snapshot(snapshot_properties=summary).overwrite() as snapshot:
                        for task in now:
                            snapshot.delete_data_file(task.file)
                        for file in large:
                            snapshot.append_data_file(file)
                return
            except CommitConflict:
                continue
        raise CommitConflict("other programs commit to the table all the time")

    def remove_old(self, keep_seconds: float) -> tuple[int, int]:
        before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=keep_seconds)
        with translated(self._id):
            protected = {reference.snapshot_id for reference in self._table.metadata.refs.values()}
            old = [
                snapshot.snapshot_id
                for snapshot in self._table.metadata.snapshots
                if snapshot.timestamp_ms < before.timestamp() * 1000 and snapshot.snapshot_id not in protected
            ]
            if old:
                self._table.maintenance.expire_snapshots().by_ids(old).commit()
            removed = remove_unnamed_files(self._table.refresh(), before)
        return len(old), removed

    def refusal(self, rows: pa.RecordBatchReader) -> str | None:
        try:
            for _ in self._checked(rows):
                pass
        except RowsRefused as refused:
            return refused.text
        return None

    def _checked(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The rows; RowsRefused at the first without a value for a column that requires one."""
        required = [field.name for field in self._table.schema().fields if field.required]
        if not required:
            return rows

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                for name in required:
                    if name not in batch.schema.names or batch.column(name).null_count:
                        raise RowsRefused(f"The column {name!r} of the table requires a value.")
                yield batch

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """A commit on this very snapshot; pyiceberg would store the files again on a newer one."""
        metadata = self._table.metadata
        once = metadata.model_copy(update={"properties": {**metadata.properties, **_ONE_TRY}})
        table = self._table
        with (
            translated(self._id),
            Iceberg(
                table.name(), once, table.metadata_location, table.io, table.catalog
            ).transaction() as changes,
        ):
            yield changes


class IcebergDestination(LakeDestination):
    """Rows in Iceberg tables."""

    Settings: ClassVar[type[msgspec.Struct]] = IcebergSettings
    capabilities = Capabilities(
        types={
            Kind.STRING: "string",
            Kind.FLOAT64: "double",
            Kind.INT64: "long",
            Kind.BOOL: "boolean",
            Kind.TIMESTAMP: "timestamptz",
            Kind.JSON: "string",
        },
        max_identifier_length=200,
        max_columns=10_000,
        folds_case=True,
        supports_transactions=True,
        any_letters=True,
        # metadata columns
        reserved_columns=frozenset({"_deleted", "_file", "_partition", "_pos", "_spec_id"}),
    )
    options: IcebergSettings

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        # the format derives a partition's value itself: no column has it
        self._partitions = parse_partitions(id, self.options.partition_by)
        self.sort_by = self.options.sort_by
        self._namespace = tuple(self.options.namespace.split("."))
        self._catalog: Catalog | None = None
        self._places: dict[str, str] = {}
        path = self.options.path.rstrip("/")
        is_local = bool(path) and len(urlsplit(path).scheme) < 2  # a drive letter is no scheme
        if not self.options.catalog and not is_local:
            raise SettingsError(
                [
                    f"the destination {id} needs `path`, a local folder, or `catalog`, as in "
                    "`{type: rest, uri: …}`"
                ]
            )
        self._folder = Path(path).resolve() if is_local else None
        self._warehouse = self._folder.as_uri() if self._folder else path or _url(self.options.catalog)

    def dataset(self, table: str) -> tuple[str, str]:
        name = self.folder_name(table)
        if place := self._places.get(name) or self._place(name):
            return dataset_of(place)
        return self._name_in_catalog(name)

    def other_names(self, table: str) -> list[tuple[str, str]]:
        return [self._name_in_catalog(self.folder_name(table))]

    def _name_in_catalog(self, name: str) -> tuple[str, str]:
        """As openlineage-java has it: in a REST catalog of its URI, in others of their warehouse."""
        dotted = ".".join((*self._namespace, name))
        uri = urlsplit(self.options.catalog.get("uri", ""))
        if uri.scheme in ("http", "https"):
            host = uri.netloc.rpartition("@")[2]
            return f"{uri.scheme}://{host}{uri.path}".rstrip("/"), dotted
        if self._warehouse:
            namespace, path = dataset_of(self._warehouse)
            return (f"file:{path}" if namespace == "file" else f"{namespace}/{path}".rstrip("/")), dotted
        return f"iceberg://{self.id}", dotted

    def prepare(self) -> None:
        properties = dict(self.options.catalog)
        with translated(self.id):
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                if not properties:
                    properties = {"type": "sql", "uri": f"sqlite:///{quote(str(self._folder))}/catalog.db"}
            if self._warehouse:
                properties.setdefault("warehouse", self._warehouse)
            catalog = load_catalog(properties.pop("name", "headwater"), **properties)
            try:
                for length in range(1, len(self._namespace) + 1):
                    try:
                        catalog.create_namespace_if_not_exists(self._namespace[:length])
                    except NamespaceAlreadyExistsError:
                        pass  # another process was quicker
            except BaseException:
                catalog.close()
                raise
            self._catalog = catalog

    def close(self) -> None:
        super().close()
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    @property
    def catalog(self) -> Catalog:
        if self._catalog is None:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")
        return self._catalog

    def open(self, name: str) -> IcebergLakeTable | None:
        identifier = (*self._namespace, self.folder_name(name))
        with translated(self.id):
            try:
                table = self.catalog.load_table(identifier)
            except NoSuchTableError:
                if _is_view(self.catalog, identifier):
                    raise self.view_error(name) from None
                return None
        self._places[identifier[-1]] = table.metadata.location
        return IcebergLakeTable(table, name, self.id)

    def names(self) -> list[str]:
        with translated(self.id):
            return sorted(identifier[-1] for identifier in self.catalog.list_tables(self._namespace))

    def create(self, wanted: Table, columns: Sequence[Column], key: Sequence[str]) -> None:
        every = [*columns, *self._missing_partition_columns(columns)]
        fields = [
            NestedField(number, column.name, _iceberg_type(column.sql_type), required=False)
            for number, column in enumerate(every, 1)
        ]
        settings = {
            _CREATED: str(int(time.time())),
            _KEY: msgspec.json.encode(tuple(key)).decode(),
            **_OF_NEW_TABLES,
        }
        name = self.folder_name(wanted.name)
        schema = Schema(*fields)
        with translated(self.id):
            self.catalog.create_table(
                (*self._namespace, name),
                schema,
                location=self._place(name) or None,
                partition_spec=self._spec(schema, wanted.name),
                properties=settings,
            )

    def engine_type(self, sql_type: str) -> str:
        name = _canonical(sql_type)
        return name.upper() if _DECIMAL.fullmatch(name) else _TYPES.get(name, ("", ""))[1]

    def _place(self, name: str) -> str:
        """Where a table is created; empty where the catalog decides."""
        return "/".join((self._warehouse, *self._namespace, name)) if self._warehouse else ""

    def _missing_partition_columns(self, columns: Sequence[Column]) -> list[Column]:
        have = {self.folded(column.name) for column in columns}
        return [
            self._with_type(Column(each.column, Kind.TIMESTAMP if each.transform else Kind.STRING))
            for each in self._partitions
            if self.folded(each.column) not in have
        ]

    def _spec(self, schema: Schema, table: str) -> PartitionSpec:
        by_name = {self.folded(field.name): field for field in schema.fields}
        fields = []
        for number, each in enumerate(self._partitions, 1000):
            field = by_name[self.folded(each.column)]
            if each.transform and not isinstance(field.field_type, _TIMES):
                raise _not_a_time(self.id, table, each, field.field_type)
            transform = parse_transform(each.transform[:-1] or "identity")
            fields.append(IcebergPartition(field.field_id, number, transform, each.name))
        return PartitionSpec(*fields)


def _deletes(task: FileScanTask) -> set[str]:
    """The files that delete rows of a file."""
    return {file.file_path for file in task.delete_files}


_TIMES = (TimestamptzType, TimestampType, DateType)


def dataset_of(place: str) -> tuple[str, str]:
    """OpenLineage namespace and name of a folder or of an object's URL."""
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.lstrip("/")


@contextmanager
def translated(destination: str) -> Iterator[None]:
    """Errors of pyiceberg and of its catalogs as errors of the contract."""
    try:
        yield
    except (CommitConflict, WarehouseError):
        raise
    except (CommitFailedException, ValidationException, TableAlreadyExistsError) as error:
        raise CommitConflict(str(error)) from error
    except (NoSuchTableError, NoSuchNamespaceError, pa.ArrowInvalid) as error:
        raise LoadRefused(f"{first_line(error)}.", hint=CHANGED) from error
    except (AssertionError, AttributeError, LookupError, TypeError):
        raise
    except Exception as error:
        # pyiceberg's own refusals; an answer of a catalog that is not JSON is a subclass
        if type(error) is ValueError:
            raise LoadRefused(f"{first_line(error)}.", hint=CHANGED) from error
        # each kind of catalog has errors of its own client, and all may pass
        raise DestinationUnavailable(
            f"destination {destination}: {first_line(error) or type(error).__name__}.",
            hint="Check `path`, `catalog` and the credentials; the load is retried.",
        ) from error


@contextmanager
def _removed_on_error(table: Iceberg, files: Sequence[Any]) -> Iterator[None]:
    """Removes files that no snapshot has because their commit was refused."""
    try:
        yield
    except (CommitFailedException, ValidationException):
        remove_files(table, files)
        raise


def _is_view(catalog: Catalog, identifier: tuple[str, ...]) -> bool:
    try:
        return bool(catalog.view_exists(identifier))
    except NotImplementedError:
        return False  # a catalog without views


def _not_a_time(destination: str, table: str, field: PartitionField, type: IcebergType) -> TableRefused:
    return TableRefused(
        f"the destination {destination} partitions by {field.transform}({field.column}), but "
        f"{field.column!r} of the new table {table!r} is a {type}.",
        hint=f"Set the type of {field.column} in the mapping to timestamptz, or change `partition_by`.",
    )


def _url(catalog: dict[str, str]) -> str:
    """The warehouse of a catalog if it is a place; for some servers it is a name."""
    warehouse = catalog.get("warehouse", "").rstrip("/")
    return warehouse if len(urlsplit(warehouse).scheme) > 1 or warehouse.startswith("/") else ""


def _canonical(sql_type: str) -> str:
    name = " ".join(sql_type.lower().split())
    if match := _DECIMAL.fullmatch(name):
        return f"decimal({match[1]},{match[2]})"
    return _OTHER_NAMES.get(name, name)


def _iceberg_type(sql_type: str) -> IcebergType:
    name = _canonical(sql_type)
    if match := _DECIMAL.fullmatch(name):
        return DecimalType(int(match[1]), int(match[2]))
    if name not in _TYPES:
        raise TableRefused(
            f"Iceberg has no type {sql_type!r} for a value of an event.",
            hint=f"Use one of {', '.join(_TYPES)} or decimal(p,s).",
        )
    return _TYPES[name][0]


def _type_name(type: IcebergType) -> str:
    """The name of a type; that of a struct, a list or a map is its kind alone."""
    if isinstance(type, PrimitiveType):
        return _canonical(str(type))
    return str(type).partition("<")[0]
