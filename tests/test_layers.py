"""Imports go downwards only, the core stays light, files stay short."""

from __future__ import annotations

import statistics
import subprocess
import sys

import pytest

from .sources import SOURCE, Module, modules

# What each part may import of the package, besides itself; a part that is not listed may not exist.
COMMON = {"network", "errors", "settings", "events", "clock", "metrics", "crash_points", "extensions"}
COMMON |= {"durable_files", "event_loop"}
MAY_IMPORT: dict[str, set[str]] = {
    "network": set(),
    "errors": set(),
    "clock": set(),
    "events": set(),
    "crash_points": set(),
    "event_loop": set(),
    "durable_files": {"errors", "crash_points"},
    "extensions": {"errors"},
    "settings": {"errors"},
    "metrics": {"clock", "errors"},
    "log": COMMON,
    "http": COMMON,
    "gateway": COMMON | {"http", "log"},
    "delivery": COMMON | {"log"},
    "spool": COMMON | {"log", "delivery"},
    # delivery: rows of a destination that is no database leave by its client
    "destinations": COMMON | {"delivery"},
    "pipeline": COMMON | {"log", "destinations", "delivery"},
    "lineage": COMMON,  # people use it alone: no other stage
    "graph": COMMON | {"log", "http"},
    "page": COMMON | {"log", "http", "graph"},
    # what it re-exports is the public API of the stages
    "extend": COMMON | {"log", "gateway", "delivery", "destinations", "pipeline", "lineage"},
    "testing": COMMON | {"log", "delivery", "http", "gateway", "destinations", "lineage"},
    "cli": COMMON
    | {
        "log",
        "http",
        "gateway",
        "delivery",
        "testing",
        "destinations",
        "pipeline",
        "lineage",
        "graph",
        "page",
    },
    "__main__": {"cli"},
    "": set(),
}
HEAVY = {"pyspark", "py4j", "duckdb", "pyarrow", "pandas", "numpy"}
# Extras, and never loaded by the sidecar: what makes tables, and the suite that tests it.
MAY_IMPORT_HEAVY = (
    "headwater.destinations.",
    "headwater.pipeline.",
    "headwater.lineage.",
    "headwater.cli.demo.report_job",
    "headwater.testing.destinations",
    "headwater.testing.lineage",
)
# The client costs 20 MB and half a second, and both are extras: only these may name them, even in functions.
MAY_IMPORT_CLIENT = (
    "headwater.spool",
    "headwater.cli.demo.delivery",
    "headwater.lineage.",
    "headwater.testing.lineage",
)
MAY_IMPORT_RICH = {"headwater.cli.output"}
# The biggest part has floors of its own: a module imports from its own floor and from those below.
LINEAGE_FLOORS: list[set[str]] = [
    {"naming", "jvm"},
    {"runs", "settings"},
    {"extend"},
    {"facets"},
    {"datasets", "columns"},
    {"events"},
    {"sending"},
    {"session"},
    {"process"},
    {"__main__"},
]
LONGEST = 700
LONGEST_MEDIAN = 150


def part_of(name: str) -> str:
    """`log` of headwater.log.queue.log; the empty name of the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_imports_go_downwards_only_when_a_module_is_read(module: Module) -> None:
    own = part_of(module.name)
    assert own in MAY_IMPORT, f"{own} is a new part: say here what it may import"
    known = {found.name for found in modules()}
    for imported in module.imports():
        if imported.partition(".")[0] != "headwater":
            continue
        target = imported if imported in known else imported.rpartition(".")[0]
        if imported == "headwater.__version__":
            continue
        other = part_of(target)
        assert other == own or other in MAY_IMPORT[own], f"{module.name} must not import {imported}"


@pytest.mark.parametrize(
    "module",
    [module for module in modules() if module.name.startswith("headwater.lineage.")],
    ids=lambda module: module.name,
)
def test_imports_go_downwards_when_a_module_of_lineage_is_read(module: Module) -> None:
    floors = {part: floor for floor, parts in enumerate(LINEAGE_FLOORS) for part in parts}
    own = module.name.split(".")[2]
    assert own in floors, f"{own} is a new part of lineage: say here on which floor it lies"
    for imported in module.imports():
        if imported.startswith("headwater.lineage."):
            other = imported.split(".")[2]
            assert floors[other] <= floors[own], f"{module.name} must not import {imported}"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_nothing_heavy_is_imported_when_it_is_not_an_extra(module: Module) -> None:
    tops = {imported.partition(".")[0] for imported in module.imports()}
    assert not tops & HEAVY or module.name.startswith(MAY_IMPORT_HEAVY)
    assert "openlineage" not in tops or module.name.startswith(MAY_IMPORT_CLIENT)
    assert "rich" not in tops or module.name in MAY_IMPORT_RICH


def test_no_stage_is_loaded_when_the_package_is_imported() -> None:
    code = "import sys, headwater; print(*[name for name in sys.modules if name.startswith('headwater')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["headwater"]


def test_files_are_short_when_they_are_counted() -> None:
    lengths = {module.name: module.text.count("\n") for module in modules()}
    for path in (path for kind in ("java", "js", "css") for path in SOURCE.rglob(f"*.{kind}")):
        assert path.read_text(encoding="utf-8").count("\n") <= LONGEST, f"{path} is too long"
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}
    assert statistics.median(lengths.values()) <= LONGEST_MEDIAN
