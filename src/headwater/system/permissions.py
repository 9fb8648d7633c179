"""Which file or folder this user may not use, and the command that changes it."""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Iterable
from pathlib import Path

MAX_ENTRIES = 1_000  # of a folder: a folder of a million files must not delay an error


def find_denied(folders: Iterable[Path]) -> Path | None:
    """The first folder, or file in one of them, that this user may not read and write; None if there is none.

    For a folder that does not exist yet its nearest parent counts.
    """
    for folder in folders:
        found = nearest(folder)
        if not os.access(found, os.W_OK | os.X_OK | (os.R_OK if found == folder else 0)):
            return found
        if found != folder or not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MAX_ENTRIES), entries, strict=False):
                if entry.is_file(follow_symlinks=False) and not os.access(entry, os.R_OK | os.W_OK):
                    return Path(entry)
    return None


def nearest(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    return next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))


def permission_hint(path: Path) -> str:
    """The command that gives this user access to a folder, or to the folder of a file."""
    found = nearest(path).absolute()
    if found.is_file():
        found = found.parent  # SQLite's files beside it have the same owner and mode
    try:
        owner = found.stat().st_uid
    except OSError:
        return f"Let this user read {found.parent}."
    quoted = shlex.quote(str(found))
    if owner == os.geteuid():
        return f"Run `chmod -R u+rwX {quoted}`."
    command = f"sudo chown -R {_name(os.geteuid())} {quoted}"
    return f"Run `{command}`, or run Headwater as the owner, {_name(owner)}."


def _name(id: int) -> str:
    try:
        return pwd.getpwuid(id).pw_name
    except KeyError:
        return str(id)
