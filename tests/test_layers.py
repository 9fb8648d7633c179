"""Imports go downwards only and not in cycles, the core stays light, files stay short."""

from __future__ import annotations

import statistics
import subprocess
import sys

from .sources import SOURCE, Module, modules

# What each part may import of the package, besides itself; a part that is not listed may not exist.
COMMON = {"clock", "errors", "events", "extensions", "formats", "metrics", "settings", "system", "text_cache"}
MAY_IMPORT: dict[str, set[str]] = {
    "formats": set(),
    "system": {"errors", "formats", "text_cache"},
    "text_cache": set(),
    "errors": set(),
    "clock": set(),
    "events": set(),
    "extensions": {"errors", "system"},
    "settings": {"errors", "formats"},
    "metrics": {"clock", "errors"},
    "log": COMMON,
    "http": COMMON - {"events"},
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
    "notebook": {"cli", "graph", "settings"},
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
    {"runs", "settings", "setting_sources", "unused_settings"},
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


def imports_within(module: Module, imports: tuple[str, ...]) -> list[str]:
    """The modules of the package that a module imports."""
    known = {found.name for found in modules()}
    own = [name for name in imports if name.startswith("headwater.") and name != "headwater.__version__"]
    return [name if name in known else name.rpartition(".")[0] for name in own]


def test_imports_go_downwards_only_when_modules_are_read() -> None:
    parts = {part_of(module.name) for module in modules()}
    assert parts <= MAY_IMPORT.keys(), "a new part: add it to MAY_IMPORT"
    violations = [
        f"{module.name} imports {imported}"
        for module in modules()
        for imported in imports_within(module, module.imports())
        if part_of(imported) not in {part_of(module.name), *MAY_IMPORT[part_of(module.name)]}
    ]
    assert violations == []


def test_imports_go_downwards_when_modules_of_lineage_are_read() -> None:
    floors = {part: floor for floor, parts in enumerate(LINEAGE_FLOORS) for part in parts}
    violations = [
        f"{module.name} imports {imported}"
        for module in modules()
        if module.name.startswith("headwater.lineage.")
        for imported in module.imports()
        if imported.startswith("headwater.lineage.")
        and floors[imported.split(".")[2]] > floors[module.name.split(".")[2]]
    ]
    assert violations == []


def test_no_modules_import_each_other_when_they_are_loaded() -> None:
    graph = {
        module.name: set(imports_within(module, module.imports_when_loaded())) - {module.name}
        for module in modules()
    }
    while leaves := {name for name, imported in graph.items() if not imported & graph.keys()}:
        for name in leaves:
            del graph[name]
    assert {name: sorted(imported & graph.keys()) for name, imported in graph.items()} == {}


def test_nothing_heavy_is_imported_when_it_is_not_an_extra() -> None:
    violations = [
        f"{module.name} imports {sorted(forbidden)}"
        for module in modules()
        if (forbidden := tops(module) & forbidden_to(module))
    ]
    assert violations == []


def tops(module: Module) -> set[str]:
    return {imported.partition(".")[0] for imported in module.imports()}


def forbidden_to(module: Module) -> set[str]:
    heavy = set() if module.name.startswith(MAY_IMPORT_HEAVY) else HEAVY
    client = set() if module.name.startswith(MAY_IMPORT_CLIENT) else {"openlineage"}
    rich = set() if module.name in MAY_IMPORT_RICH else {"rich"}
    return heavy | client | rich


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
