"""The datasets that a program declares for its own rows (extend/declared.py), as inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.lineage.extend.builders import InputDatasetBuilder, OutputDatasetBuilder
from headwater.lineage.extend.declared import INPUT, OUTPUT, DeclaredInput, DeclaredOutput, declaration
from headwater.lineage.extend.spark_objects import QueryExecution
from headwater.lineage.facets.dataset import schema
from headwater.lineage.jvm.plan import Attribute, Plan
from headwater.lineage.runs import Run

_PROGRAM_ROWS = {"LocalRelation", "LogicalRDD", "ExternalRDD"}


def declared_inputs(run: Run, objects: Sequence[object]) -> list[tuple[int, InputDatasetBuilder]]:
    """The declared input of each leaf with the program's rows, with the id of its SQL execution."""
    found = declaration(run, INPUT, DeclaredInput)
    made: list[tuple[int, InputDatasetBuilder]] = []
    if found is None or not found.columns:
        return made
    for query in objects:
        if not isinstance(query, QueryExecution) or query.plan is None:
            continue
        for node in query.plan.nodes:
            columns = [column for column in node.out if column.name in found.columns]
            is_whole = len({column.name for column in columns}) == len(found.columns)
            if node.simple in _PROGRAM_ROWS and is_whole:
                one = InputDatasetBuilder(
                    found.namespace,
                    found.name,
                    {"schema": schema(columns)},
                    expr_ids=[column.id for column in columns],
                    node=node.id,
                )
                one.named_by_program = True
                made.append((query.id, one))
    return made


def declared_outputs(run: Run, objects: Sequence[object]) -> list[tuple[int, OutputDatasetBuilder]]:
    """The declared output of the outermost query, with the id of its SQL execution."""
    found = declaration(run, OUTPUT, DeclaredOutput)
    if found is None:
        return []
    for query in objects:
        if isinstance(query, QueryExecution) and query.plan is not None and query.plan.top is not None:
            made = OutputDatasetBuilder(found.namespace, found.name, node=query.plan.root)
            made.named_by_program = True
            made.columns_not_written = frozenset(found.without)
            columns = [column for column in _columns(query.plan) if column.name not in found.without]
            if columns:
                made.facets["schema"] = schema(columns)
            return [(query.id, made)]
    return []


def _columns(plan: Plan) -> Sequence[Attribute]:
    top = plan.top
    if top is None or top.out:
        return top.out if top is not None else []
    return next((kid.out for kid in plan.children(top) if kid.out), [])
