"""Reads and writes the case files of tests/cases/columns; their README describes the form."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from headwater.lineage.columns.written_columns import ColumnLineage, InputColumn

__all__ = ["FOLDER", "Case", "as_text", "read_cases", "write_cases"]

FOLDER = Path(__file__).parent.parent / "cases" / "columns"


class Case(NamedTuple):
    """One query and its expected edges."""

    file: str
    name: str
    tables: dict[str, str]
    query: str
    expected: str

    @property
    def is_python(self) -> bool:
        """Whether the query is a piece of Python that sets `df`."""
        return self.query.startswith("python\n")


def read_cases(path: Path) -> list[Case]:
    """All cases of a file."""
    head, *parts = path.read_text(encoding="utf-8").split("\n== ")
    tables = {}
    for line in head.splitlines():
        for kind in ("table ", "v2 "):
            if line.startswith(kind):
                name, _, columns = line.removeprefix(kind).partition(":")
                tables[name.strip()] = columns.strip()
    cases = []
    for part in parts:
        name, _, body = part.partition("\n")
        query, _, expected = body.partition("\n--\n")
        cases.append(Case(path.stem, name.strip(), tables, query.strip(), expected.strip()))
    return cases


def write_cases(path: Path, found: dict[str, str]) -> None:
    """Replace the expected edges by those that were found."""
    head, *parts = path.read_text(encoding="utf-8").split("\n== ")
    for at, part in enumerate(parts):
        name, _, body = part.partition("\n")
        if name.strip() in found:
            query = body.partition("\n--\n")[0].rstrip()
            parts[at] = f"{name}\n{query}\n--\n{found[name.strip()]}\n"
    path.write_text("\n== ".join([head, *parts]), encoding="utf-8")


def as_text(lineage: ColumnLineage) -> str:
    """A lineage in the form of the case files."""
    lines = [f"{name} <- {_inputs(inputs)}" for name, inputs in lineage.fields.items()]
    if lineage.dataset:
        lines.append(f"* <- {_inputs(lineage.dataset)}")
    lines += [f"? {gap.what}: {gap.reason.partition(':')[0]}" for gap in lineage.gaps]
    lines += [f"! {cut}" for cut in lineage.cut]
    return "\n".join(lines)


def _inputs(inputs: list[InputColumn]) -> str:
    return "; ".join(_input(one) for one in inputs) or "nothing"


def _input(one: InputColumn) -> str:
    kinds = []
    for kind in one.transformations:
        text = kind.subtype + (" masked" if kind.masking else "") + (f" ({kind.note})" if kind.note else "")
        kinds.append(text)
    pointer = f"#{one.pointer}" if one.pointer else ""
    return f"{one.dataset.name}.{one.field}{pointer} {'+'.join(kinds)}"
