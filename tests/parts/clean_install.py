"""A Python with what `pip install 'headwater[extras]'` brings and nothing else, without an installation.

The packages are those of this environment, as links: what only a development environment has cannot be
imported.
"""

from __future__ import annotations

import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["clean_python"]


def clean_python(folder: Path, *extras: str) -> Path:
    """The interpreter of a new environment in `folder`."""
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = (folder / "lib").glob("python*/site-packages")
    for name in sorted(_closure(extras)):
        for file in metadata.distribution(name).files or ():
            top = file.parts[0]
            source = Path(str(metadata.distribution(name).locate_file(top)))
            if top not in ("..", "__pycache__") and source.exists() and not (packages / top).exists():
                (packages / top).symlink_to(source)
    return folder / "bin" / "python"


def _closure(extras: tuple[str, ...]) -> set[str]:
    """The distributions that the extras bring, with those that these need."""
    found: set[str] = set()
    waiting = [("headwater", frozenset(extras))]
    done = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # a marker of another platform
        found.add(name)
        for requirement in map(Requirement, requires):
            environments = [{"extra": extra} for extra in wanted] or [{"extra": ""}]
            marker = requirement.marker
            if marker is None or any(marker.evaluate(each) for each in environments):
                each = canonicalize_name(requirement.name), frozenset(requirement.extras)
                if each not in done:
                    done.add(each)
                    waiting.append(each)
    return found
