"""One load by way of a table beside its own: see merging.py."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.crash_points import crash_point
from headwater.destinations.base import Load, Loaded, RefusedRow
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import RowsRefused, Selection, set_aside
from headwater.destinations.sql import statements as merge_sql
from headwater.destinations.sql.transfer_columns import ROW_SLOT, Carried, Form, carried_batches, staging_form
from headwater.destinations.staged_files import Staged
from headwater.destinations.table import UNMAPPED, Column, Table, check_sql_type
from headwater.errors import LoadRefused

if TYPE_CHECKING:
    from headwater.destinations.sql.merging import MergingDestination

__all__ = ["MergeLoad"]

_BATCH_ROWS = 65_536


class MergeLoad:
    """Rows on their way into one table."""

    def __init__(self, destination: MergingDestination, load: Load) -> None:
        self._to, self._sql, self._load = destination, destination.sql, load
        self._staged = Staged(load.files)
        table = destination.table(load.table.name)
        if table is None:
            raise LoadRefused(
                f"the table {load.table.name!r} is not there.", hint="Run again: it is made before each load."
            )
        self._table = table
        self._carried = [self._carry(name, f"{number}") for number, name in enumerate(self._staged.columns)]
        self._misfits = self._conditions()
        self._gone: list[RefusedRow] = []
        self._beside = ""

    def run(self) -> Loaded:
        """Store the rows, once; those that the table refuses are set aside."""
        with self._filled():
            if self._count(Selection()) and UNMAPPED not in self._table.columns:
                # before the transaction: not every product alters tables in one
                columns = {**self._table.columns, UNMAPPED: Column(UNMAPPED, Kind.JSON)}
                self._table = self._to.patch(Table(self._table.name, columns, self._table.primary_key))
            try:
                return self._finish(())
            except RowsRefused:
                gone = {each.row for each in self._gone}
                ids = [row for row in self._staged.row_ids() if row not in gone]
                return self._finish(set_aside(ids, self._failure, self._to.max_refused))

    def _carry(self, name: str, number: str) -> Carried:
        actual = {self._sql.fold(column): found for column, found in self._table.columns.items()}
        target = actual.get(self._sql.fold(name))
        if target is None:
            raise LoadRefused(
                f"the table {self._table.name!r} has no column {name!r}.",
                hint="Run again: missing columns are added before each load.",
            )
        cast = self._load.table.columns.get(name, target).cast_type
        form = self._form(self._staged.types[name], target) if not cast else None
        is_certain = form is not None and form is not Form.DECIMAL
        return Carried(
            name,
            target,
            form or Form.TEXT,
            f"c{number}",
            "" if is_certain else f"j{number}",
            check_sql_type(cast) if cast else "",
            form is None,
        )

    def _form(self, staged: pa.DataType, target: Column) -> Form | None:
        """As what a column travels so that it fits; None: it must be tried."""
        own = staging_form(staged)
        if target.sql_type == self._to.decimal_type and own in (Form.FLOAT, Form.DECIMAL):
            return Form.DECIMAL
        natural = self._to.natural.get(target.sql_type)
        return natural if natural in (own, Form.TEXT) else None

    @contextmanager
    def _filled(self) -> Iterator[None]:
        """While the table beside is there; rows that could not travel are in `_gone`."""
        name = f"_headwater_staged_{uuid.uuid4().hex}"
        slots = {ROW_SLOT: Form.INTEGER} | {each.slot: each.form for each in self._carried}
        slots |= {each.json_slot: Form.TEXT for each in self._carried if each.json_slot}
        with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
            files = self._write(list(slots), Path(folder))
            if len(self._gone) > self._to.max_refused:
                raise LoadRefused(
                    f"{len(self._gone)} of {self._staged.rows} rows are refused; "
                    f"the last reason: {self._gone[-1].reason}",
                    hint="Nothing was loaded. Mend the mapping; then run again.",
                )
            types = self._to.staging_types
            columns = ", ".join(f"{self._sql.quoted(slot)} {types[form]}" for slot, form in slots.items())
            self._beside = self._to.relation_beside(name)
            try:
                self._to.fill(name, columns, files)
                yield
            finally:
                self._to.drop_beside(name)

    def _write(self, slots: Sequence[str], folder: Path) -> list[Path]:
        """The rows as files that the product reads; none if there are no rows."""
        path, writer = folder / "rows.parquet", None
        batches = carried_batches(
            self._staged.batches(_BATCH_ROWS),
            self._carried,
            time_type=self._to.time_type,
            max_text_bytes=self._to.max_text_bytes,
            keeps_nul=self._to.keeps_nul,
            refused=self._gone,
        )
        try:
            for batch in batches:
                rows = batch.select(slots)
                if rows.num_rows and writer is None:
                    writer = pq.ParquetWriter(path, rows.schema, compression="snappy")
                if writer is not None:
                    writer.write_table(rows)
        finally:
            if writer is not None:
                writer.close()
        return [path] if writer is not None else []

    def _conditions(self) -> dict[str, tuple[str, str]]:
        """By column: the condition under which its value does not fit, and that value's JSON."""
        found = {}
        for each in self._carried:
            if each.json_slot:
                json = f"staged.{self._sql.quoted(each.json_slot)}"
                found[each.name] = (f"{json} IS NOT NULL AND {self._value(each)} IS NULL", json)
        return found

    def _value(self, carried: Carried) -> str:
        """SQL of the column's value; NULL where it does not fit."""
        value = f"staged.{self._sql.quoted(carried.slot)}"
        if carried.tried:
            if carried.cast:
                value = f"CAST({self._to.tried(value, carried.cast)} AS {self._to.staging_types[Form.TEXT]})"
            return self._to.tried(value, carried.target.sql_type)
        if carried.form is Form.TIME:
            return self._to.moment(value)
        return self._to.json(value) if carried.target.kind is Kind.JSON else value

    def _count(self, selection: Selection) -> int:
        """How many values do not fit."""
        if not self._misfits:
            return 0
        counts = ", ".join(f"sum(CASE WHEN {when} THEN 1 ELSE 0 END)" for when, _ in self._misfits.values())
        where = selection.condition(f"staged.{self._sql.quoted(ROW_SLOT)}")
        rows = self._to.execute(f"SELECT {counts} FROM {self._beside} AS staged WHERE {where}")
        return sum(int(count or 0) for count in rows[0])

    def _finish(self, refused: tuple[RefusedRow, ...]) -> Loaded:
        """Store what is not refused."""
        selection = Selection(without=tuple(each.row for each in refused))
        refused = tuple(sorted((*self._gone, *refused), key=lambda each: each.row))
        rows, unmapped = self._staged.rows - len(refused), self._count(selection)
        loaded = Loaded(id=self._load.id, rows=rows, unmapped=unmapped, refused=refused)
        statements = self._statements(selection, unmapped) if rows else []
        if self._to.commit(self._table.name, loaded, statements):
            crash_point("load.after_commit")
            return loaded
        found = self._to.found(self._load.id)
        assert found is not None, "a row of the ledger is never deleted"
        return found

    def _failure(self, selection: Selection) -> str | None:
        """Why the selected rows are not taken, or None if they are; they are not stored in either case."""
        try:
            self._to.attempt(self._statements(selection, self._count(selection)))
        except RowsRefused as refusal:
            return refusal.text
        return None

    def _statements(self, selection: Selection, unmapped: int) -> list[str]:
        to, sql = self._to, self._sql
        values = {sql.fold(each.name): self._value(each) for each in self._carried}
        if unmapped:
            own = next((each for each in self._carried if sql.fold(each.name) == UNMAPPED), None)
            text = f"staged.{sql.quoted(own.slot)}" if own else "NULL"
            values[UNMAPPED] = to.json(merge_sql.gathered(text, self._misfits, sql))
        key = tuple(sql.fold(name) for name in self._table.key)
        condition = selection.condition(f"staged.{sql.quoted(ROW_SLOT)}")
        rows = merge_sql.Rows(self._beside, values, condition, key if {*key} <= {*values} else ())
        target = to.relation(self._table.name)
        if not rows.key:
            return [merge_sql.insert(target, rows, sql)]
        # asked for first: mostly no row lacks its key and no key is repeated, and then little is to be done
        lacking = to.execute(merge_sql.lacking(rows, sql))
        any_repeated = bool(to.execute(merge_sql.repeated(rows, sql)))
        statements = [merge_sql.keyless(target, rows, sql)] if lacking else []
        return statements + to.upsert(target, rows, any_repeated=any_repeated)
