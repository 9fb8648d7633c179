"""The columns of a batch against those of a table: which are stored, which are new, which overflow.

The type of a column of the table wins over that of the batch; a value that does not
convert goes to `_unmapped_data`: `project.py` asks for it, `spark/java/ParseEvents.java` does it, row by row.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.destinations.base import Capabilities, Destination
from headwater.destinations.column_types import Kind, promote
from headwater.destinations.locks import Locks
from headwater.destinations.table import UNMAPPED, Column, Table, table_of
from headwater.errors import TableBusy, TableNotAllowed, WarehouseError
from headwater.pipeline.steps.batch_schema import BatchColumn, batch_columns, column_name
from headwater.pipeline.steps.convert import may_not_fit
from headwater.pipeline.steps.field_tree import Field, Json, JsonTypes, Lookup, Path, parse_pointer
from headwater.pipeline.steps.mapping import MappedField, map_fields
from headwater.settings import DestinationSettings, MappingSettings

logger = logging.getLogger(__name__)

FEW_COLUMNS = 64
"""If more columns than this have no room, the whole objects that contain them are kept instead."""
MAX_NAMED = 100
"""At most so many columns without room are named in a report."""
CONTEXT = ("_timestamp", "eventn_ctx_event_id", "event_id", "api_key", "source_ip")
"""Columns of what the gateway adds to events. They get room before the fields of the events themselves."""
RESERVED_PART = 20
"""At most this part of `max_columns` is kept free for context columns that no event has yet."""
MAX_REFITS = 3
"""How often a patch is repeated if another pipeline changes the table at the same time."""


@dataclass
class Overflow:
    """Values without a column: columns that have no room, and objects whose other fields are kept.

    `excluded_paths` must not appear among those fields: the mapping removed them or moved them elsewhere.
    """

    columns: list[BatchColumn] = field(default_factory=list)
    kept_objects: list[Path] = field(default_factory=list)
    excluded_paths: list[Path] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.columns or self.kept_objects)


@dataclass
class TableFit:
    """How a batch is stored in a table."""

    columns: dict[str, BatchColumn] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    """The kind that each column is staged as."""
    new: list[Column] = field(default_factory=list)
    overflow: Overflow = field(default_factory=Overflow)
    without_room: tuple[str, ...] = ()
    """Columns that overflow, the most common first."""
    has_repeated_keys: bool = False
    """Whether an event has a key more than once: values of the same path besides the last go aside."""

    @property
    def needs_unmapped(self) -> bool:
        """Whether a value of the batch may go to `_unmapped_data`."""
        return (
            bool(self.overflow)
            or self.has_repeated_keys
            or any(
                _may_meet(column)
                or any(
                    self.may_not_fit(mapped, each, name) for mapped in column.mapped for each in mapped.fields
                )
                for name, column in self.columns.items()
            )
        )

    def may_not_fit(self, mapped: MappedField, source: Field, column: str) -> bool:
        """Whether a value of the field may not convert to its column."""
        return may_not_fit(made_types(source) | json_types_of(mapped, source), self.kinds[column])

    def has_same_rows(self, other: TableFit) -> bool:
        """Whether both give the same columns from the same fields."""
        return bool(self._sources() == other._sources())

    def _sources(self) -> Any:
        def of(column: BatchColumn) -> Any:
            return [(each.path, each.is_text, [one.source for one in each.fields]) for each in column.mapped]

        stored = {name: (self.kinds[name], of(column)) for name, column in self.columns.items()}
        overflow = {column.name: of(column) for column in self.overflow.columns}
        return stored, overflow, self.overflow.kept_objects, self.overflow.excluded_paths

    def fits(self, table: Table) -> bool:
        """Whether the table has all columns that the batch needs."""
        return not self.new and (UNMAPPED in table.columns or not self.needs_unmapped)


def _may_meet(column: BatchColumn) -> bool:
    """Whether an event may have two values for the column; one of them goes to `_unmapped_data`."""
    fields = [each for mapped in column.mapped for each in mapped.fields]
    of_event = [each for each in fields if isinstance(each.source, Json)]
    return len(column.mapped) > 1 or len(of_event) > 1 or bool(of_event and of_event[0] is not fields[0])


def made_types(source: Field) -> JsonTypes:
    """The JSON types of a field; an integer that is looked up may have more digits than a double."""
    types = source.json_types
    if isinstance(source.source, Lookup) and JsonTypes.INT64 in types:
        types |= JsonTypes.LARGE_INT64
    return types


def json_types_of(mapped: MappedField, source: Field) -> JsonTypes:
    """The JSON types of a field; objects that are kept whole are text, like arrays."""
    if mapped.is_text and JsonTypes.OBJECT in source.json_types:
        return (source.json_types & ~JsonTypes.OBJECT) | JsonTypes.TOO_DEEP
    return source.json_types


def fit_table(
    root: Field,
    columns: dict[str, BatchColumn],
    existing: Table | None,
    settings: DestinationSettings,
    capabilities: Capabilities,
    *,
    may_add: bool = True,
) -> TableFit:
    """Decides the kind of each column: that of the table if it has the column, else the batch's own.

    If there is not room for all new columns, those of the key and of the context get theirs first, then those
    that most events have; the others overflow. Context columns that no event has yet keep their room.
    `max_new_columns` limits what one batch adds, so that no wide event fills a table; a batch whose columns
    are added already may add no more.
    """
    fold = str.lower if capabilities.folds_case else str
    stored = {fold(name): column for name, column in (existing.columns if existing else {}).items()}
    room = min(settings.max_columns, capabilities.max_columns) - len(stored)
    if UNMAPPED not in stored:
        room -= 1  # the column for values that do not fit is always needed
    fit = TableFit(has_repeated_keys=root.has_repeated_keys)
    over_limit = []
    key = [name for name in _key(settings, capabilities) if name in columns]
    new = [name for name in columns if fold(name) not in stored]
    chosen = _with_room(new, columns, room, (*key, *CONTEXT), stored, settings) if may_add else set()
    for name in [*key, *(name for name in columns if name not in key)]:
        column = columns[name]
        if (found := stored.get(fold(name))) is not None:
            fit.kinds[name] = found.kind
        elif name in chosen:
            fit.kinds[name] = column.kind
            fit.new.append(column.column)
        else:
            over_limit.append(column)
            continue
        fit.columns[name] = column
    fit.without_room = tuple(
        column.name for column in sorted(over_limit, key=lambda column: -column.count)[:MAX_NAMED]
    )
    fit.overflow = _overflow(root, fit.columns.values(), over_limit, settings.mappings)
    return fit


def _with_room(
    new: list[str],
    columns: dict[str, BatchColumn],
    room: int,
    first: Sequence[str],
    stored: Container[str],
    settings: DestinationSettings,
) -> set[str]:
    """The new columns that get the room: those of `first`, then those with the most values."""
    reserved = sum(name not in stored and name not in columns for name in CONTEXT)
    own_room = room - min(reserved, settings.max_columns // RESERVED_PART)
    own_room = min(own_room, settings.max_new_columns)
    chosen = {name for name in first if name in new}
    if len(chosen) > room:
        return set([name for name in dict.fromkeys(first) if name in chosen][: max(0, room)])
    others = sorted((name for name in new if name not in chosen), key=lambda name: -columns[name].count)
    return chosen | set(others[: max(0, own_room - len(chosen))])


def _overflow(
    root: Field, stored: Iterable[BatchColumn], over_limit: list[BatchColumn], mapping: MappingSettings
) -> Overflow:
    named = {path[:length] for path in _paths(stored) for length in range(len(path))} | {()}
    kept = set(_objects_with_omitted_fields(root, ())) if mapping.keep_unmapped else set()
    columns = over_limit
    if len(over_limit) > FEW_COLUMNS:
        columns = [column for column in over_limit if not list(_paths([column]))]
        # the deepest object that has a field read by name: everything below it is kept whole
        kept |= {_deepest(path, named) for path in _paths(over_limit)}
    kept = {_deepest((*path, ""), named) for path in kept}
    gone = [parse_pointer(line.src) for line in mapping.fields if line.action in ("remove", "move")]
    excluded = [path for path in gone if any(path[: len(each)] == each for each in kept)] if kept else []
    for path in excluded:
        for length in range(1, len(path)):
            if any(path[: len(each)] == each and len(each) < length for each in kept):
                kept.add(path[:length])
    return Overflow(columns, sorted(kept), excluded)


def _deepest(path: Path, named: set[Path]) -> Path:
    return next(path[:length] for length in range(len(path) - 1, -1, -1) if path[:length] in named)


def _objects_with_omitted_fields(found: Field, path: Path) -> Iterator[Path]:
    if JsonTypes.FIELDS_OMITTED in found.json_types and isinstance(found.source, Json):
        yield path
    for name, child in found.children.items():
        yield from _objects_with_omitted_fields(child, (*path, name))


def _paths(columns: Iterable[BatchColumn]) -> Iterator[Path]:
    for column in columns:
        for mapped in column.mapped:
            for each in mapped.fields:
                if isinstance(each.source, Json):
                    yield each.source.path


def wanted_columns(
    root: Field, settings: DestinationSettings, capabilities: Capabilities
) -> dict[str, BatchColumn]:
    """The columns that the mapped fields of a batch become."""
    keep = [parse_pointer(column) for column in settings.primary_key if column.startswith("/")]
    mapped = map_fields(root, settings.mappings, keep=keep)
    return batch_columns(mapped, capabilities)


def plan_table(
    name: str,
    root: Field,
    columns: dict[str, BatchColumn],
    existing: Table | None,
    settings: DestinationSettings,
    capabilities: Capabilities,
    *,
    may_add: bool = True,
) -> tuple[TableFit, Table]:
    """How the batch fits the existing table, and the table that it needs."""
    fit = fit_table(root, columns, existing, settings, capabilities, may_add=may_add)
    structure = [column.column for column in fit.columns.values()]
    if fit.needs_unmapped:
        structure.append(Column(UNMAPPED, Kind.JSON))
    # A new table cannot have a key of which its first batch has no value; a later batch adds it.
    key = _key(settings, capabilities)
    has_key = existing is not None or all(column in fit.columns for column in key)
    return fit, table_of(name, structure, key if has_key else ())


def _key(settings: DestinationSettings, capabilities: Capabilities) -> tuple[str, ...]:
    return tuple(column_name(parse_pointer(column), capabilities) for column in settings.primary_key)


class TablePatcher:
    """Makes tables fit batches. It remembers their structure, so a further batch that fits needs no query."""

    def __init__(self, settings: DestinationSettings, destination: Destination, locks: Locks) -> None:
        self._settings = settings
        self._destination = destination
        self._locks = locks
        self._known: dict[str, Table] = {}
        self._not_widened: set[tuple[str, str]] = set()

    def plan(self, name: str, root: Field, columns: dict[str, BatchColumn]) -> tuple[TableFit, bool]:
        """How a batch would fit the table now, and whether that has `_unmapped_data`; changes nothing."""
        existing = self._known.get(name) or self._destination.table(name)
        capabilities = self._destination.capabilities
        fit, _ = plan_table(name, root, columns, existing, self._settings, capabilities)
        return fit, existing is not None and UNMAPPED in existing.columns

    def patch(self, name: str, root: Field, columns: dict[str, BatchColumn]) -> tuple[TableFit, Table]:
        """Adds the columns that the batch needs; returns the fit and the table as it is then."""

        capabilities = self._destination.capabilities

        def plan(existing: Table | None, *, may_add: bool = True) -> tuple[TableFit, Table]:
            return plan_table(name, root, columns, existing, self._settings, capabilities, may_add=may_add)

        if (known := self._known.get(name)) is not None:
            fit, wanted = plan(known)
            has_key = not wanted.primary_key or wanted.primary_key in (known.primary_key, known.users_key)
            if has_key and fit.fits(known) and not self._wider_kinds(known, columns):
                return fit, with_mapping_casts(known, wanted)
        existing = self._destination.table(name)
        if existing is None:
            self._check_new(name)
        _, wanted = plan(existing)
        for _ in range(MAX_REFITS):
            with self._locks.hold(self._settings.id, name):
                table = self._widen(self._destination.patch(wanted), columns)
            fit, wanted = plan(table, may_add=False)  # what is missing still has no room in this load
            if fit.fits(table):
                break
        self._known[name] = with_mapping_casts(table, wanted)
        return fit, self._known[name]

    def _wider_kinds(self, table: Table, columns: dict[str, BatchColumn]) -> dict[str, Kind]:
        """The kinds that stored columns need for the batch, as far as the settings allow."""
        if self._settings.widen_columns == "never":
            return {}
        fold = str.lower if self._destination.capabilities.folds_case else str
        stored = {fold(name): column for name, column in table.columns.items() if name not in table.key}
        wider: dict[str, Kind] = {}
        for name, column in columns.items():
            found = stored.get(fold(name))
            if found is None or column.column.sql_type or (table.name, found.name) in self._not_widened:
                continue
            kind = promote(found.kind, column.kind)
            is_number = (found.kind, kind) == (Kind.INT64, Kind.FLOAT64)
            if kind is not found.kind and (is_number or self._settings.widen_columns == "text"):
                wider[found.name] = kind
        return wider

    def _widen(self, table: Table, columns: dict[str, BatchColumn]) -> Table:
        """Widens stored columns for the batch; where that is refused, values go to `_unmapped_data`."""
        for column, kind in self._wider_kinds(table, columns).items():
            try:
                table = self._destination.widen(
                    table.name, {column: kind}, max_rows=self._settings.max_widen_rows
                )
            except TableBusy:
                raise
            except WarehouseError as error:
                self._not_widened.add((table.name, column))
                logger.warning("%s/%s: %s", self._settings.id, table.name, error)
            else:
                logger.info("%s/%s: the column %r is wider now.", self._settings.id, table.name, column)
        return table

    def _check_new(self, name: str) -> None:
        """Raise TableNotAllowed if enough tables were created within the last hour."""
        limit = self._settings.max_new_tables_per_hour
        created = self._destination.tables_created_since(int(time.time()) - 3_600)
        if created >= limit:
            raise TableNotAllowed(
                f"{created} tables were created within an hour, and {name!r} would be one more.",
                hint="Raise `max_new_tables_per_hour` of the destination, or wait; then replay its rejects.",
            )

    def forget(self, name: str) -> None:
        """Discards what is known about a table."""
        self._known.pop(name, None)


def with_mapping_casts(table: Table, wanted: Table) -> Table:
    """The table with the casts of the mapping."""
    columns = {
        column: Column(column, found.kind, found.sql_type, wanted.columns[column].cast_type)
        if column in wanted.columns
        else found
        for column, found in table.columns.items()
    }
    return Table(table.name, columns, table.primary_key, table.users_key)
