"""Column lineage: where each column that is written comes from, and what it depends on besides (G11)."""

from __future__ import annotations

from headwater.lineage.columns.column_history import ColumnMemory
from headwater.lineage.columns.facet import column_lineage_facet, explicit_lineage_facet
from headwater.lineage.columns.graph import Gap, Graph, Late, ToldColumns
from headwater.lineage.columns.lineage import (
    ColumnLineage,
    ColumnSettings,
    InputColumn,
    Written,
    column_graph,
    column_lineage,
    written_by,
)

__all__ = [
    "ColumnLineage",
    "ColumnMemory",
    "ColumnSettings",
    "Gap",
    "Graph",
    "InputColumn",
    "Late",
    "ToldColumns",
    "Written",
    "column_graph",
    "column_lineage",
    "column_lineage_facet",
    "explicit_lineage_facet",
    "written_by",
]
