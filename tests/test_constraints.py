"""constraints.txt has an exact version of every package, and pyproject.toml allows it."""

from __future__ import annotations

import itertools
import re
import tomllib

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .sources import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = [
    line
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def pins() -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for line in LINES:
        requirement = Requirement(line)
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def test_each_line_is_a_package_with_its_exact_version_when_the_file_is_read() -> None:
    assert len(LINES) > 100
    for line in LINES:
        assert re.fullmatch(r"[a-z0-9._-]+==[\w.!+]+( ; .+)?", line), line


def test_pyproject_allows_every_version_when_they_are_compared() -> None:
    extras = PROJECT["optional-dependencies"].values()
    asked = [*PROJECT["dependencies"], *itertools.chain.from_iterable(extras)]
    locked = pins()
    for requirement in map(Requirement, asked):
        name = canonicalize_name(requirement.name)
        if name == "headwater":
            continue
        assert name in locked, f"run `make lock`: {requirement}"
        for pin in locked[name]:
            (exact,) = pin.specifier
            assert requirement.specifier.contains(exact.version, prereleases=True), f"{requirement}: {pin}"


def test_a_package_has_one_version_when_it_is_installed_here() -> None:
    """The markers of the lines of one package exclude each other."""
    for name, lines in pins().items():
        here = [line for line in lines if line.marker is None or line.marker.evaluate()]
        assert len(here) <= 1, name


def test_each_supported_python_is_named_when_the_classifiers_are_read() -> None:
    named = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each}
    assert named == {"3.11", "3.12", "3.13", "3.14"}
    for minor in named:
        environment = {"python_version": minor, "python_full_version": f"{minor}.0"}
        for lines in pins().values():
            here = [
                each
                for each in lines
                if Marker(str(each.marker or "python_version > '3'")).evaluate(environment)
            ]
            assert len(here) <= 1, (minor, here)


def test_no_collector_of_java_that_corrupts_data_is_allowed_when_the_extra_is_read() -> None:
    (java,) = map(Requirement, PROJECT["optional-dependencies"]["java"])
    allowed = [
        version
        for version in ("21.0.8.2", "25.0.0.1", "25.0.1", "25.0.2.1", "25.0.3")
        if version in java.specifier
    ]
    assert allowed == ["21.0.8.2", "25.0.3"]
