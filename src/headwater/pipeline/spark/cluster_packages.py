"""The Python packages that executors of a cluster need.

The two Java classes go as a jar (see compiled_classes.py). The Python packages go as one archive, which
each executor unpacks into its working folder and has on its path. So a worker needs Spark, a Python of the
same minor version and the same kind of machine, and nothing of ours. If everything is installed there
already, set `pipeline.ship_packages: false`.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from headwater.settings import PipelineSettings

FOLDER = "headwater_packages"
NEEDED = (
    "apsw",
    "backports.zstd",
    "iptocc",
    "maxminddb",
    "msgspec",
    "orjson",
    "pyarrow",
    "pyyaml",
    "ua-parser",
    "ua-parser-rs",
)
"""The packages that our own code imports on an executor; those that are installed here are sent."""

ENRICHERS = "headwater.enrichers"
_ELSEWHERE = {"headwater", "pyspark", "py4j"}
_USELESS = re.compile(r"(^|/)(__pycache__|tests|include|\.\.)(/|\Z)|\.(pyc|pyx|pxd|pxi|h|a)\Z")


def is_cluster(master: str) -> bool:
    """Whether executors are processes of their own, possibly on other machines."""
    return not re.match(r"local(\[|\Z)", master)


def shipped(settings: PipelineSettings, conf: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The configuration, with the files that go to executors added; the archive is kept in `folder`."""
    found = dict(conf)
    if settings.city_database:
        _append(found, "spark.files", str(Path(settings.city_database).resolve()), ",")
    if settings.ship_packages:
        _append(found, "spark.archives", f"{pack(folder)}#{FOLDER}", ",")
        # relative: an executor runs where its archives are unpacked
        _append(found, "spark.executorEnv.PYTHONPATH", FOLDER, os.pathsep)
    return found


def pack(folder: Path) -> Path:
    """An archive of this package and of all that it needs on an executor; made once per set of versions."""
    needed = sorted(_closure(), key=lambda each: each.name)
    own = sorted(_own_files())
    digest = hashlib.sha256("\0".join(f"{each.name}={each.version}" for each in needed).encode())
    for path, _ in own:
        digest.update(path.read_bytes())
    folder = folder.absolute()
    ready = folder / f"packages-{digest.hexdigest()[:16]}.zip"
    if ready.exists():
        return ready
    folder.mkdir(parents=True, exist_ok=True)
    partial = ready.with_suffix(f".partial-{os.getpid()}")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for path, name in own:
                archive.write(path, name)
            for path, name in _files(needed):
                archive.write(path, name)
        partial.replace(ready)
    finally:
        partial.unlink(missing_ok=True)
    for old in folder.glob("packages-*.zip"):
        if old != ready:
            old.unlink(missing_ok=True)
    return ready


def local_path(path: str) -> str:
    """The path of a file of the settings on this machine: on an executor it may be Spark's copy."""
    if os.path.exists(path):
        return path
    from pyspark import SparkFiles

    if not SparkFiles._is_running_on_worker:
        return path  # a driver has its own files, and may have no Spark yet
    brought = SparkFiles.get(os.path.basename(path))
    return brought if os.path.exists(brought) else path


def _append(conf: dict[str, str], name: str, value: str, separator: str) -> None:
    conf[name] = f"{conf[name]}{separator}{value}" if conf.get(name) else value


def _own_files() -> Iterator[tuple[Path, str]]:
    """The files of this package, from its folder: the metadata of an editable install lacks them."""
    root = Path(__file__).parents[2]
    for path in root.rglob("*"):
        name = f"headwater/{path.relative_to(root).as_posix()}"
        if path.is_file() and not _USELESS.search(name):
            yield path, name


def _closure() -> list[metadata.Distribution]:
    """The distributions that are needed, and what they need themselves."""
    waiting = list(NEEDED)
    for point in metadata.entry_points(group=ENRICHERS):
        if point.dist is not None:  # enrichment rules of other packages run on executors too
            waiting.append(point.dist.name)
    found: dict[str, metadata.Distribution] = {}
    while waiting:
        name = _folded(waiting.pop())
        if name in found or name in _ELSEWHERE:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for line in found[name].requires or ():
            required, _, marker = line.partition(";")
            if "extra ==" not in marker:
                waiting.append(re.split(r"[^A-Za-z0-9._-]", required.strip(), maxsplit=1)[0])
    return list(found.values())


def _files(distributions: list[metadata.Distribution]) -> Iterator[tuple[Path, str]]:
    for distribution in distributions:
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if not _USELESS.search(file.as_posix()) and path.is_file():
                yield path, file.as_posix()


def _folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
