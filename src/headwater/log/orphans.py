"""Events that wait where the settings load nothing any more, after a change of the settings.

Only reads. A destination that was removed or renamed leaves files and a queue; one that left stream mode
leaves a queue, which the pipeline still loads.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import apsw

from headwater.errors import LogLocked, SettingsError
from headwater.log.files.file_status import FileStatus
from headwater.log.files.layout import EventFolder
from headwater.log.queue.offline import stat, tail_of
from headwater.log.queue.partition_file import partition_paths
from headwater.log.streams import StreamCursor, identity_of, stream_folder
from headwater.settings import DestinationSettings, Settings
from headwater.system.durable_files import FolderLock, try_lock


class Orphan(NamedTuple):
    """A destination that the settings do not have, and what waits for it."""

    destination: str
    files: int
    events: int
    """Events of its queue."""

    def __str__(self) -> str:
        waiting = [f"{self.files:,} event file(s)"] * bool(self.files)
        waiting += [f"{self.events:,} event(s) of a queue"] * bool(self.events)
        return (
            f"{' and '.join(waiting)} wait for the destination {self.destination}, which the settings do not "
            "have. Configure it again until `headwater status` shows that nothing waits for it, or give its "
            f"events up: headwater pipeline forget {self.destination}"
        )


def orphans(settings: Settings) -> list[Orphan]:
    """The destinations that events wait for and the settings do not have."""
    configured = {each.id for each in settings.destinations}
    folder = EventFolder(settings.events_dir)
    files: dict[str, int] = {}
    for file in folder.rotated_files():
        if file.token_id:
            for id in waits_for(FileStatus.load(file)) - configured:
                files[id] = files.get(id, 0) + 1
    events = {id: waiting_in(queue) for id, queue in folder.queues().items() if id not in configured}
    found = [Orphan(id, files.get(id, 0), events.get(id, 0)) for id in sorted(files.keys() | events.keys())]
    return [each for each in found if each.files or each.events]


def waits_for(status: FileStatus) -> set[str]:
    """The destinations that a file is known to be for, and that do not have all of it."""
    wanted = {id for id in status.wanted_by or () if id not in status.counts}
    return wanted | {id for (id, _), pair in status.pairs.items() if not pair.uploaded}


def refuse_orphans(settings: Settings) -> None:
    """Raise SettingsError, with the commands, if events wait for a destination that is not configured."""
    if problems := [str(each) for each in orphans(settings)]:
        raise SettingsError(problems)


def waiting_in(queue: Path) -> int:
    """How many events of a queue are not loaded; of one without a server, whatever its `tail` says."""
    cursor = StreamCursor.peek(queue)
    if cursor is not None and cursor.queue == identity_of(queue):
        done = cursor.position
    else:
        paths = partition_paths(queue)
        done = int(paths[0].stem) if paths else 1
    try:
        end = stat(queue).end
    except (OSError, apsw.Error):
        end = tail_of(queue)
    return max(0, end - done)


def left_over_queues(settings: Settings) -> list[DestinationSettings]:
    """The destinations with events in a queue that no stream follows: they left stream mode, or for Kafka."""
    folder = EventFolder(settings.events_dir)
    return [
        each
        for each in settings.destinations
        if (each.mode == "batch" or settings.events.kafka is not None)
        and folder.queue(each.id).is_dir()
        and identity_of(folder.queue(each.id))
        and waiting_in(folder.queue(each.id))
    ]


def has_left_over_files(settings: Settings) -> bool:
    """Whether files wait for a destination that loads files no more."""
    ids = {each.id for each in settings.destinations if not each.is_batch}
    return any(
        ids & waits_for(FileStatus.load(file))
        for file in EventFolder(settings.events_dir).rotated_files()
        if file.token_id
    )


def forget_destination(events_dir: Path, destination: str) -> None:
    """Note in all files that a destination does not want them, and remove its queue.

    LogLocked if a server or a pipeline with other settings has the queue or a file open.
    """
    folder = EventFolder(events_dir)
    if (queue := folder.queues().get(destination)) is not None:
        locks = [FolderLock(queue)]
        try:
            if stream_folder(queue).is_dir():
                locks.append(FolderLock(stream_folder(queue)))
            shutil.rmtree(queue)
        finally:
            for lock in locks:
                lock.release()
    for file in folder.rotated_files():
        if not file.token_id:
            continue
        with file.path.open("rb") as claim:
            if not try_lock(claim.fileno()):
                raise LogLocked(
                    f"A pipeline is loading {file.name}.", hint="Stop it, and repeat the command."
                )
            status = FileStatus.load(file)
            if destination in waits_for(status):
                status.forget(destination)
                status.save()
