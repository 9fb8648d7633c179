"""A copy of the data folder that can be restored, made beside a running server and pipeline or without.

Every event that was acknowledged before the copy began is in it: it waits there, or it is in the archive, or
a receiver has it. Parts of the copy may be of different age: cursors are copied after the events that they
are about, and step back where they are newer (`log/streams.py`). Databases are copied by SQLite, page by
page, so that a commit is whole or missing. Event files are copied once they are complete: the server is asked
to complete those that it writes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec

from headwater.errors import HeadwaterError
from headwater.formats.json_decoder import json_decoder
from headwater.log.files.incoming import finish_interrupted, request_rotation
from headwater.log.files.layout import EventFolder
from headwater.log.queue.sqlite import connect
from headwater.system.crash_points import crash_point
from headwater.system.durable_files import identity, is_locked, make_folder, replace, sync_file, sync_folder

MANIFEST = "backup.json"
TAIL = "tail"  # of a log: where it ends
DATA, EVENTS = "data", "events"
ROTATION_SECONDS = 60.0
POLL_SECONDS = 0.05
CHUNK_BYTES = 1 << 20
# what only a running process needs, and what is made again
LEFT_OUT = {"lock", "reserve", "probe", "spark.log", "staging", "locks"}
# in this order: what says how far events were worked off comes after the events
LAST = ("archive", "stream", "index.db", "rejects.db", "graph")


class CopiedFile(msgspec.Struct, frozen=True):
    """A file of a backup."""

    path: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a backup has; it is written last, so a folder without it is no backup."""

    at: float
    data_dir: str
    files: list[CopiedFile]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


_MANIFEST = json_decoder(Manifest)


def back_up(
    data_dir: Path,
    events_dir: Path,
    target: Path,
    *,
    with_archive: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Manifest:
    """Copy everything below `data_dir`, and `events_dir` wherever it is, into a new folder."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise HeadwaterError(f"{target} is there already.", hint="Name a folder that does not exist.")
    if not data_dir.is_dir():
        raise HeadwaterError(f"{data_dir} does not exist.", hint="Name the configuration with -c.")
    refuse_half_restored(data_dir)
    if target.resolve().is_relative_to(data_dir.resolve()):
        raise HeadwaterError(
            f"{target} is in the data folder, which it would contain.", hint="Name a folder elsewhere."
        )
    make_folder(target)
    _complete_event_files(events_dir)
    copied: list[CopiedFile] = []
    for source, name in ((events_dir, EVENTS), (data_dir, DATA)):
        without = {events_dir.resolve()} if name == DATA else set()
        if not with_archive:
            without.add((events_dir / "archive").resolve())
        for path in _files(source, without):
            place = target / name / path.relative_to(source)
            if (file := _copy(path, place)) is not None:
                copied.append(msgspec.structs.replace(file, path=str(place.relative_to(target))))
                if progress is not None:
                    progress(len(copied))
            crash_point("backup.after_file")
    for folder in {(target / file.path).parent for file in copied}:
        sync_folder(folder)
    manifest = Manifest(time.time(), str(data_dir.resolve()), copied)
    replace(target / MANIFEST, msgspec.json.encode(manifest))
    return manifest


def _complete_event_files(events_dir: Path) -> None:
    """Wait until the files that are being written now are complete.

    A copy of an incomplete file would get a name of its own when it is completed, and its events would be
    loaded a second time.
    """
    folder = EventFolder(events_dir)
    if not folder.incoming.is_dir():
        return
    if not is_locked(folder.incoming):
        finish_interrupted(events_dir)
        return
    waiting = {path: identity(path) for path in folder.active_files().values()}
    request_rotation(events_dir)
    deadline = time.monotonic() + ROTATION_SECONDS
    while any(_is_being_written(path, found) for path, found in waiting.items()):
        if time.monotonic() > deadline:
            raise HeadwaterError(
                f"The server has not completed its event files within {ROTATION_SECONDS:.0f} s.",
                hint="See `headwater status` and the lines that the server prints; then repeat the command.",
            )
        time.sleep(POLL_SECONDS)


def _is_being_written(path: Path, file: tuple[int, int] | None) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return found.st_size > 0 and file == (found.st_dev, found.st_ino)


def _files(source: Path, without: set[Path]) -> Iterator[Path]:
    """The files to copy. Each `tail` comes before the others are listed: what follows it is not missing."""
    yield from (path for path in _listed(source, without) if path.name == TAIL)
    yield from (path for path in _listed(source, without) if path.name != TAIL)


def _listed(source: Path, without: set[Path]) -> list[Path]:
    found: list[Path] = []
    for parent, folders, names in os.walk(source):
        here = Path(parent)
        folders[:] = [
            name for name in folders if name not in LEFT_OUT and (here / name).resolve() not in without
        ]
        found += [here / name for name in names if _is_wanted(here, name)]
    return sorted(found, key=lambda path: (_rank(path.relative_to(source)), str(path)))


def _is_wanted(folder: Path, name: str) -> bool:
    if name in LEFT_OUT or name.endswith((".tmp", "-wal", "-shm", "-journal")):
        return False
    # an incomplete event file: all that was in it when the copy began is in a complete one
    return not (folder.name == "incoming" and name in _active_names(folder))


def _active_names(incoming: Path) -> set[str]:
    return {path.name for path in EventFolder(incoming.parent).active_files().values()}


def _rank(path: Path) -> int:
    found = [place for place, name in enumerate(LAST, 1) if name in path.parts]
    return 2 * max(found, default=0) + (path.suffix == ".status")


def _copy(path: Path, place: Path) -> CopiedFile | None:
    """Copy a file; None if it is gone: it was loaded, delivered or archived meanwhile."""
    place.parent.mkdir(0o700, parents=True, exist_ok=True)
    try:
        if not _is_database(path) or not _copy_database(path, place):
            shutil.copyfile(path, place)
    except (FileNotFoundError, apsw.CantOpenError):
        if path.exists():
            raise
        place.unlink(missing_ok=True)
        return None
    place.chmod(0o600)
    sync_file(place)
    return CopiedFile("", place.stat().st_size, _sha256(place))


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _copy_database(path: Path, place: Path) -> bool:
    """Copy a database as of one moment; False if it is damaged: its bytes are evidence."""
    source = connect(path, reader=True)
    try:
        target = apsw.Connection(str(place))
        try:
            with target.backup("main", source, "main") as backup:
                backup.step(-1)
        finally:
            target.close()
    except (apsw.CorruptError, apsw.NotADBError):
        return False
    finally:
        source.close()
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(backup: Path) -> Manifest:
    """The manifest of a backup whose files are all as they were copied."""
    try:
        manifest = _MANIFEST.decode((backup / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise HeadwaterError(
            f"{backup} has no {MANIFEST}: it is no backup, or one that was interrupted.",
            hint="Name a folder that `headwater backup` made.",
        ) from None
    except msgspec.DecodeError as error:
        raise HeadwaterError(
            f"{backup / MANIFEST} is damaged: {error}.", hint="Use another backup."
        ) from None
    for file in manifest.files:
        path = backup / file.path
        if ".." in Path(file.path).parts or not path.is_file() or _sha256(path) != file.sha256:
            raise HeadwaterError(
                f"{path} is missing or not as it was copied; nothing was restored.",
                hint="Use another backup.",
            )
    return manifest


def restore(backup: Path, data_dir: Path, events_dir: Path) -> Manifest:
    """Put a backup into the place of a data folder that is missing or empty."""
    manifest = read_manifest(backup)
    for folder in (data_dir, events_dir):
        if folder.exists() and any(folder.iterdir()):
            raise HeadwaterError(
                f"{folder} is not empty; nothing was restored.",
                hint=f"Stop server and pipeline and move it away: mv {folder} {folder}.old",
            )
    make_folder(data_dir)
    draft = data_dir / "restoring"  # a server refuses a folder that has it
    make_folder(draft)
    for file in manifest.files:
        part, _, rest = file.path.partition("/")
        place = (events_dir if part == EVENTS else data_dir) / rest
        place.parent.mkdir(0o700, parents=True, exist_ok=True)
        shutil.copyfile(backup / file.path, place)
        place.chmod(0o600)
        sync_file(place)
        crash_point("restore.after_file")
    for folder in {p.parent for root in (data_dir, events_dir) for p in root.rglob("*")}:
        sync_folder(folder)
    draft.rmdir()
    sync_folder(data_dir)
    return manifest


def refuse_half_restored(data_dir: Path) -> None:
    """Raise HeadwaterError if a restore into the folder was interrupted."""
    if (data_dir / "restoring").is_dir():
        raise HeadwaterError(
            f"{data_dir} was restored in part only.",
            hint=f"Remove it and restore it again: rm -r {data_dir} && headwater restore BACKUP",
        )
