"""A load for ClickHouse made ready: staged, cast and merged in tables beside its target."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from headwater.destinations.base import Load
from headwater.destinations.clickhouse.connection import ClickHouseServer
from headwater.destinations.clickhouse.types import fit, listed, literal, quoted, staged_type
from headwater.destinations.refused_rows import RowsRefused, Selection
from headwater.destinations.staged_files import Staged
from headwater.destinations.table import ROW, UNMAPPED, Table
from headwater.errors import LoadRefused

__all__ = ["KEYLESS", "Beside", "Ready", "beside", "whole"]

KEYLESS = "_headwater_keyless"
"""Hidden part of our sorting keys: rows that lack their key differ in it, and so replace nobody."""


class Beside(NamedTuple):
    """The tables beside a load's target."""

    raw: str
    ready: str


def beside(load_id: str) -> Beside:
    """Their names: the same for whoever tries again."""
    digest = blake2b(load_id.encode(), digest_size=12).hexdigest()
    return Beside(f"_headwater_raw_{digest}", f"_headwater_ready_{digest}")


class Ready:
    """Fills a table that is like the target with a load's rows. Nothing of it shows in the target."""

    def __init__(self, server: ClickHouseServer, load: Load, staged: Staged, table: Table) -> None:
        self._server, self._load, self._staged, self._table = server, load, staged, table
        self._raw, self.name = beside(load.id)
        self._fits = {
            name: fit(
                f"staged.{quoted(name)}",
                staged.types[name],
                load.table.columns.get(name, table.columns[name]).cast_type,
                table.columns[name].sql_type,
            )
            for name in staged.columns
        }
        self._misfits = {name: found.misfit for name, found in self._fits.items() if found.misfit}

    def stage(self) -> None:
        """The staged files as a table."""
        self.drop()
        columns = ", ".join(
            f"{quoted(name)} {'Int64' if name == ROW else f'Nullable({staged_type(type)})'}"
            for name, type in self._staged.types.items()
        )
        raw = self._server.relation(self._raw)
        self._server.command(f"CREATE TABLE {raw} ({columns}) ENGINE = MergeTree ORDER BY {quoted(ROW)}")
        for file in self._staged.files:
            with open(file, "rb") as parquet:
                self._server.insert_parquet(self._raw, list(self._staged.types), parquet)

    def drop(self) -> None:
        """Leave nothing behind."""
        self._server.drop(self._raw, self.name)

    def count_misfits(self, selection: Selection) -> int:
        """How many values of the selected rows their columns do not take."""
        if not self._misfits:
            return 0
        counts = ", ".join(f"countIf({condition})" for condition in self._misfits.values())
        (row,) = self._server.query(f"SELECT {counts} {self._selected(selection)}")
        return sum(int(str(count)) for count in row)

    def failure(self, selection: Selection) -> str | None:
        """Why the selected rows are not taken, or None if they are."""
        try:
            self.fill(selection)
        except RowsRefused as refusal:
            return refusal.text
        return None

    def fill(self, selection: Selection) -> None:
        """Put the selected rows, and no others, into the table that is to be moved."""
        properties = self._server.properties(self._table.name)
        if properties is None:
            raise LoadRefused(f"the table {self._table.name!r} is gone.", hint="Run again: it is made anew.")
        like = "" if properties.moves else " ENGINE = MergeTree ORDER BY tuple()"
        target, ready = self._server.relation(self._table.name), self._server.relation(self.name)
        self._server.drop(self.name)
        self._server.command(f"CREATE TABLE {ready} AS {target}{like}")
        values = {name: found.value for name, found in self._fits.items()}
        if self._misfits and UNMAPPED in self._table.columns:
            values[UNMAPPED] = _gathered(values.get(UNMAPPED, "NULL"), self._misfits)
        named = ", ".join(f"{value} AS {quoted(name)}" for name, value in values.items())
        base = f"SELECT {named}, staged.{quoted(ROW)} AS {quoted(ROW)} {self._selected(selection)}"
        key = self._table.key if {*self._table.key} <= {*values} else ()
        hidden = [KEYLESS] if self._table.primary_key else []
        unlike = f", concat({literal(self._load.id + ':')}, toString({quoted(ROW)}))" if hidden else ""
        rest = f" WHERE NOT ({whole(key)})" if key else ""
        self._server.command(
            f"INSERT INTO {ready} ({listed([*values, *hidden])}) "
            f"SELECT {listed(values)}{unlike} FROM ({base}) AS base{rest}"
        )
        if key:
            rows = self._merged(key, list(values), base, properties.final)
            self._server.command(f"INSERT INTO {ready} ({listed(self._table.columns)}) {rows}")

    def _selected(self, selection: Selection) -> str:
        condition = selection.condition(f"staged.{quoted(ROW)}")
        return f"FROM {self._server.relation(self._raw)} AS staged WHERE {condition}"

    def _merged(self, key: Sequence[str], names: Sequence[str], base: str, final: str) -> str:
        """A query for the newest row of each key: its last values, else those that are stored."""
        keys = f"SELECT {listed(key)} FROM ({base}) AS base WHERE {whole(key)}"
        new = f"SELECT {listed(names)} FROM ({base}) AS base WHERE {whole(key)}"
        if self._server.query(f"SELECT 1 FROM ({keys}) GROUP BY {listed(key)} HAVING count() > 1 LIMIT 1"):
            last = ", ".join(_last(name, name in key) for name in names)
            grouped = ", ".join(f"base.{quoted(name)}" for name in key)
            new = f"SELECT {last} FROM ({base}) AS base WHERE {whole(key, 'base.')} GROUP BY {grouped}"
        stored = (
            f"SELECT {listed(self._table.columns)} FROM {self._server.relation(self._table.name)} {final} "
            f"WHERE ({listed(key)}) IN ({keys})"
        )
        values = []
        for name in self._table.columns:
            kept = f"old.{quoted(name)}"
            merged = f"coalesce(new.{quoted(name)}, {kept})" if name in names else kept
            values.append(f"new.{quoted(name)}" if name in key else merged)
        same = " AND ".join(f"new.{quoted(name)} = old.{quoted(name)}" for name in key)
        return f"SELECT {', '.join(values)} FROM ({new}) AS new LEFT JOIN ({stored}) AS old ON {same}"


def whole(key: Sequence[str], prefix: str = "") -> str:
    """The condition that no part of the key is missing."""
    return " AND ".join(f"{prefix}{quoted(name)} IS NOT NULL" for name in key)


def _last(name: str, in_key: bool) -> str:
    value = f"base.{quoted(name)}"
    if not in_key:
        value = f"argMaxOrNullIf({value}, base.{quoted(ROW)}, {value} IS NOT NULL)"
    return f"{value} AS {quoted(name)}"


def _gathered(unmapped: str, misfits: dict[str, str]) -> str:
    parts = ", ".join(
        f"if({condition}, toJSONString(map({literal(name)}, assumeNotNull(staged.{quoted(name)}))), '{{}}')"
        for name, condition in misfits.items()
    )
    either = " OR ".join(f"({condition})" for condition in misfits.values())
    return f"if({either}, jsonMergePatch(coalesce({unmapped}, '{{}}'), {parts}), {unmapped})"
