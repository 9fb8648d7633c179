"""Copies the rejects of a damaged file that can still be read into the file that replaces it (G9)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import apsw

from headwater.log.queue.sqlite import check_version, connect, is_damage, migrate, remove_database, select
from headwater.log.rejects.schema import COLUMNS, MIGRATIONS, columns, reject_of

SALVAGED = "salvaged "  # a note, with the id of the damaged file: whose rejects these are
ROWS = 200  # of one transaction


def salvage_path(path: Path) -> Path:
    """Where the replacement is made. It is whole if there is no file on `path` any more."""
    return path.with_name(f"{path.name}.salvaged")


def salvage(path: Path, file: str, *, vfs: str | None = None) -> Path:
    """Make a file with every reject of `path`, whose id is `file`, that can be found and read.

    The ids are gathered from both ends, since one bad page stops a scan but not a scan from the other side;
    then each row is read by itself, so that a bad one costs no other.
    """
    target = salvage_path(path)
    remove_database(target)
    replacement = connect(target, vfs=vfs, create=True)
    try:
        replacement.pragma("auto_vacuum", 2)  # as in the store: it has an effect on a new file only
        migrate(replacement, MIGRATIONS, target)
        replacement.execute("INSERT INTO notes VALUES (?, '')", (SALVAGED + file,))
        with _passing_over_damage():
            _copy(path, vfs, replacement)
    finally:
        replacement.close()
    return target


def _copy(path: Path, vfs: str | None, replacement: apsw.Connection) -> None:
    damaged = connect(path, vfs=vfs, reader=True)
    try:
        read = f"SELECT {columns(check_version(damaged, MIGRATIONS, path))} FROM rejects WHERE id = ?"  # noqa: S608
        values = ", ".join("?" * len(COLUMNS.split(", ")))
        write = f"INSERT OR IGNORE INTO rejects({COLUMNS}) VALUES ({values})"  # noqa: S608
        ids = sorted(_ids(damaged))
        for start in range(0, len(ids), ROWS):
            with replacement:
                for id in ids[start : start + ROWS]:
                    with _passing_over_damage():
                        for row in select(damaged, read, id):
                            reject_of(row)  # an event without its right checksum is kept, and says so
                            replacement.execute(write, row)
    finally:
        damaged.close()


def _ids(damaged: apsw.Connection) -> set[int]:
    ids: set[int] = set()
    for order in ("ASC", "DESC"):
        with _passing_over_damage():
            for (id,) in damaged.execute(f"SELECT id FROM rejects ORDER BY id {order}"):  # noqa: S608
                if type(id) is not int or id in ids:
                    break
                ids.add(id)
    return ids


@contextlib.contextmanager
def _passing_over_damage() -> Iterator[None]:
    try:
        yield
    except (apsw.Error, ValueError) as error:
        if not is_damage(error):  # the disk fails, or is full: no reject that is there now is lost
            raise
