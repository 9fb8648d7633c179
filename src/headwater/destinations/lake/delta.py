"""Delta Lake: a folder of tables, on a local disk or an object store; no service.

delta-rs reads and writes. Each load is one commit, whose transaction identifiers are the ledger
(delta_log.py). A commit is made on the very version that was read, and never retried by delta-rs.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Field as DeltaField
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)
from deltalake.fs import DeltaStorageHandler
from deltalake.schema import DataType, PrimitiveType
from pyarrow import fs

from headwater.destinations.base import Capabilities, Loaded, Total
from headwater.destinations.column_types import Kind, kind_of_sql
from headwater.destinations.lake.delta_log import DeltaLedger, details
from headwater.destinations.lake.lake_destination import CommitConflict, LakeDestination, LakeTable
from headwater.destinations.lake.partitions import parse_partitions
from headwater.destinations.refused_rows import RowsRefused
from headwater.destinations.sql.dialect import Dialect
from headwater.destinations.sql.errors import CHANGED, first_line
from headwater.destinations.table import UNMAPPED, Column, Patch, Table
from headwater.errors import DestinationUnavailable, LoadRefused, TableRefused
from headwater.settings import PATH

_ENGINE_TYPES = {
    "string": "VARCHAR",
    "double": "DOUBLE",
    "float": "FLOAT",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_SPARK_NAMES = {
    "bigint": "long",
    "int": "integer",
    "smallint": "short",
    "tinyint": "byte",
    "real": "float",
    "text": "string",
    "bool": "boolean",
}
_DECIMAL = re.compile(r"(?:decimal|numeric|dec)\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_KINDS = {"long": Kind.INT64, "short": Kind.INT64, "byte": Kind.INT64}
_CREATED, _KEY = "headwater.created_seconds", "headwater.primary_key"
_RULE = "delta.constraints."
_BROKEN_RULE = re.compile(r"(?:[\w ]+: )*Invalid data found: \d+ rows")
"""The beginning of the text of a broken rule: delta-rs has no class of its own for it."""


class DeltaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the type `delta`."""

    path: Annotated[
        str,
        msgspec.Meta(
            description="The folder of the tables: a local one, `s3://bucket/…`, `gs://…` or `abfss://…`."
        ),
        PATH,
    ]
    storage_options: Annotated[
        dict[str, str],
        msgspec.Meta(
            description="Options of delta-rs for an object store, such as `aws_region` or `aws_endpoint`; "
            "credentials that are not here come from the environment."
        ),
    ] = {}
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


class DeltaLakeTable(LakeTable):
    """One version of a Delta table."""

    def __init__(
        self, table: DeltaTable, name: str, ledger: DeltaLedger, errors: str, files: fs.FileSystem
    ) -> None:
        self._table, self._ledger, self._id, self._files = table, ledger, errors, files
        metadata = table.metadata()
        ledger.read(str(metadata.id), table.version())
        settings = metadata.configuration
        self.is_ours = _CREATED in settings
        self.created_seconds = int(settings.get(_CREATED, 0))
        self.version = str(table.version())
        columns = {}
        for field in table.schema().fields:
            type = _type_name(field.type)
            kind = Kind.JSON if field.name == UNMAPPED else kind_of_sql(type, _KINDS)
            columns[field.name] = Column(field.name, kind, type)
        key = msgspec.json.decode(settings.get(_KEY, "[]"), type=tuple[str, ...])
        self.structure = Table(name, columns, key)

    def entry(self, id: str) -> Loaded | None:
        return self._ledger.entry(id)

    def loads_between(self, low: str, high: str) -> set[str]:
        return self._ledger.loads_between(low, high)

    def total(self) -> Total:
        return self._ledger.total()

    def change(self, patch: Patch) -> None:
        with translated(self._id):
            if patch.add:
                fields = [DeltaField(column.name, _delta_type(column.sql_type)) for column in patch.add]
                self._table.alter.add_columns(fields, commit_properties=_once())
            if patch.drop_key or patch.set_key:
                key = msgspec.json.encode(patch.set_key).decode()
                self._table.alter.set_table_properties({_KEY: key}, False, commit_properties=_once())

    def append(self, rows: pa.RecordBatchReader, loaded: Loaded) -> None:
        with translated(self._id):
            # rows have no columns of nested types, which only a table of a user can have
            is_whole = len(rows.schema) == len(self.structure.columns)
            write_deltalake(
                self._table,
                rows,
                mode="append",
                schema_mode=None if is_whole else "merge",
                commit_properties=self._entering(loaded),
            )

    def upsert(self, rows: pa.RecordBatchReader, key: Sequence[str], loaded: Loaded) -> None:
        sql = Dialect()
        names = [sql.quoted(name) for name in rows.schema.names]
        keys = [sql.quoted(name) for name in key]
        with translated(self._id):
            merge = self._table.merge(
                rows,
                predicate=" AND ".join(f"target.{name} = fresh.{name}" for name in keys),
                source_alias="fresh",
                target_alias="target",
                commit_properties=self._entering(loaded),
            )
            changes = {name: f"coalesce(fresh.{name}, target.{name})" for name in names if name not in keys}
            if changes:
                merge = merge.when_matched_update(changes)
            merge.when_not_matched_insert({name: f"fresh.{name}" for name in names}).execute()

    def enter(self, loaded: Loaded) -> None:
        with translated(self._id):
            self._table.create_write_transaction(
                [], "append", self._table.schema(), commit_properties=self._entering(loaded)
            )

    def refusal(self, rows: pa.RecordBatchReader) -> str | None:
        """Tries the rows on an empty copy of the table that has the same rules."""
        rules = {
            name.removeprefix(_RULE): value
            for name, value in self._table.metadata().configuration.items()
            if name.startswith(_RULE)
        }
        with tempfile.TemporaryDirectory() as folder:
            copy = DeltaTable.create(folder, self._table.schema())
            if rules:
                copy.alter.add_constraint(rules)
            try:
                with translated(self._id):
                    write_deltalake(copy, rows, mode="append")
            except RowsRefused as refusal:
                return f"{refusal.text} Its rules: {' AND '.join(rules.values()) or 'NOT NULL'}."
        return None

    def join_files(self) -> tuple[int, int]:
        with translated(self._id):
            # an append that comes first is no conflict; a merge is
            found = self._table.optimize.compact()
        return found["numFilesRemoved"], found["numFilesAdded"]

    def remove_old(self, keep_seconds: float) -> tuple[int, int]:
        """Of the log Delta itself keeps the days that the table's properties say."""
        with translated(self._id):
            self._table.create_checkpoint()
            commits = {file.base_name for file in self._commits()}
            self._table.cleanup_metadata()
            removed = self._table.vacuum(
                max(1, math.ceil(keep_seconds / 3600)),
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
            )
        return len(commits - {file.base_name for file in self._commits()}), len(removed)

    def _commits(self) -> list[fs.FileInfo]:
        selector = fs.FileSelector("_delta_log", allow_not_found=True)
        return [file for file in self._files.get_file_info(selector) if file.extension == "json"]

    def _entering(self, loaded: Loaded) -> CommitProperties:
        """The properties of a commit on this version that enters a load."""
        now = int(time.time() * 1000)
        entered = self._ledger.to_enter(loaded)
        return _once(details(loaded), [Transaction(app, version, now) for app, version in entered.items()])


class DeltaDestination(LakeDestination):
    """Rows in Delta tables."""

    Settings: ClassVar[type[msgspec.Struct]] = DeltaSettings
    capabilities = Capabilities(
        types={
            Kind.STRING: "string",
            Kind.FLOAT64: "double",
            Kind.INT64: "long",
            Kind.BOOL: "boolean",
            Kind.TIMESTAMP: "timestamp",
            Kind.JSON: "string",
        },
        max_identifier_length=200,
        max_columns=10_000,
        folds_case=True,
        supports_transactions=True,
        any_letters=True,
        # columns of the change data feed
        reserved_columns=frozenset({"_change_type", "_commit_timestamp", "_commit_version"}),
    )
    options: DeltaSettings

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self.partitions = parse_partitions(id, self.options.partition_by)
        self.sort_by = self.options.sort_by
        self._ledgers: dict[str, DeltaLedger] = {}
        parts = urlsplit(self.options.path)
        self._is_local = len(parts.scheme) < 2  # a drive letter is no scheme
        self._root = (
            str(Path(self.options.path).resolve()) if self._is_local else self.options.path.rstrip("/")
        )

    def dataset(self, table: str) -> tuple[str, str]:
        path = f"{self._root}/{self.folder_name(table)}"
        if self._is_local:
            return "file", path
        parts = urlsplit(path)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.lstrip("/")

    def prepare(self) -> None:
        try:
            if self._is_local:
                Path(self._root).mkdir(parents=True, exist_ok=True)
            self._filesystem().get_file_info(fs.FileSelector("", allow_not_found=True))
        except (OSError, DeltaError) as error:
            raise DestinationUnavailable(
                f"destination {self.id}: {self.options.path} cannot be used: {first_line(error)}.",
                hint="Check `path`, `storage_options` and the credentials; the load is retried.",
            ) from error

    def close(self) -> None:
        super().close()
        self._ledgers.clear()

    def open(self, name: str) -> DeltaLakeTable | None:
        folder = self.folder_name(name)
        with translated(self.id):
            try:
                table = DeltaTable(self._url(folder), storage_options=self.options.storage_options or None)
            except TableNotFoundError:
                return None
        ledger = self._ledgers.setdefault(folder, DeltaLedger(self._filesystem(), folder))
        files = fs.SubTreeFileSystem(folder, self._filesystem())
        return DeltaLakeTable(table, name, ledger, self.id, files)

    def names(self) -> list[str]:
        assert self.engine
        with translated(self.id):
            found = self._filesystem().get_file_info(fs.FileSelector("", allow_not_found=True))
            return sorted(each.base_name for each in found if each.type == fs.FileType.Directory)

    def create(self, wanted: Table, columns: Sequence[Column], key: Sequence[str]) -> None:
        every = [*columns, *map(self._with_type, self.partition_columns(columns))]
        settings = {_CREATED: str(int(time.time())), _KEY: msgspec.json.encode(tuple(key)).decode()}
        by_name = {self.folded(column.name): column.name for column in every}
        with translated(self.id):
            fields = [DeltaField(column.name, _delta_type(column.sql_type)) for column in every]
            DeltaTable.create(
                self._url(self.folder_name(wanted.name)),
                DeltaSchema(fields),
                partition_by=[by_name[self.folded(each.name)] for each in self.partitions] or None,
                name=wanted.name,
                configuration=settings,
                storage_options=self.options.storage_options or None,
                raise_if_key_not_exists=False,
            )

    def engine_type(self, sql_type: str) -> str:
        name = _canonical(sql_type)
        return name.upper() if _DECIMAL.fullmatch(name) else _ENGINE_TYPES.get(name, "")

    def _url(self, folder: str) -> str:
        return f"{self._root}/{folder}"

    def _filesystem(self) -> fs.FileSystem:
        return fs.PyFileSystem(DeltaStorageHandler(self._root, self.options.storage_options or None))


@contextmanager
def translated(destination: str) -> Iterator[None]:
    """Errors of delta-rs as errors of the contract."""
    try:
        yield
    except CommitFailedError as error:
        raise CommitConflict(str(error)) from error
    except (DeltaProtocolError, SchemaMismatchError) as error:
        raise LoadRefused(f"{first_line(error)}.", hint=CHANGED) from error
    except (DeltaError, OSError) as error:
        text = str(error)
        if type(error) is DeltaError and _BROKEN_RULE.match(text):
            raise RowsRefused("A row breaks a rule of the table.") from error
        if "already exists" in text:
            raise CommitConflict(text) from error
        raise DestinationUnavailable(
            f"destination {destination}: {first_line(error)}.", hint="The load is retried."
        ) from error


def _once(
    information: dict[str, Any] | None = None, transactions: list[Transaction] | None = None
) -> CommitProperties:
    """A commit that delta-rs does not retry on a newer version."""
    return CommitProperties(information, max_commit_retries=0, app_transactions=transactions)


def _canonical(sql_type: str) -> str:
    name = " ".join(sql_type.lower().split())
    if match := _DECIMAL.fullmatch(name):
        return f"decimal({match[1]},{match[2]})"
    return _SPARK_NAMES.get(name, name)


def _delta_type(sql_type: str) -> PrimitiveType:
    name = _canonical(sql_type)
    if name not in _ENGINE_TYPES and not _DECIMAL.fullmatch(name):
        raise TableRefused(
            f"Delta has no type {sql_type!r} for a value of an event.",
            hint=f"Use one of {', '.join(_ENGINE_TYPES)} or decimal(p,s).",
        )
    return PrimitiveType(name)


def _type_name(type: DataType) -> str:
    """The name of a type; that of a struct, a list or a map is its kind alone."""
    decoded = msgspec.json.decode(type.to_json())
    return decoded if isinstance(decoded, str) else str(decoded["type"])
