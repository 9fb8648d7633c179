"""The API of destinations, which store rows.

docs/extension-points.md is the guide; `headwater.destinations.duckdb` is the shortest example.

Needs pyarrow, which reads the staged Parquet files.
"""

from headwater.destinations.base import (
    Capabilities,
    Destination,
    Load,
    Loaded,
    Merge,
    RefusedRow,
    Total,
)
from headwater.destinations.column_types import Kind
from headwater.destinations.refused_rows import RowSelection, RowsRefused, find_refused_rows
from headwater.destinations.sql.dialect import Dialect, key_name
from headwater.destinations.sql.sql_destination import SqlDestination, StagedColumn, StagingRelation
from headwater.destinations.sql.statements import ColumnValue
from headwater.destinations.staged_files import StagedFiles
from headwater.destinations.table import (
    ROW,
    UNMAPPED,
    Column,
    Patch,
    Table,
    check_names,
    check_sql_type,
    diff,
)
from headwater.errors import DestinationUnavailable, LoadRefused, StagedFilesUnusable, TableRefused

__all__ = [
    "ROW",
    "UNMAPPED",
    "Capabilities",
    "Column",
    "ColumnValue",
    "Destination",
    "DestinationUnavailable",
    "Dialect",
    "Kind",
    "Load",
    "LoadRefused",
    "Loaded",
    "Merge",
    "Patch",
    "RefusedRow",
    "RowSelection",
    "RowsRefused",
    "SqlDestination",
    "StagedColumn",
    "StagedFiles",
    "StagedFilesUnusable",
    "StagingRelation",
    "Table",
    "TableRefused",
    "Total",
    "check_names",
    "check_sql_type",
    "diff",
    "find_refused_rows",
    "key_name",
]
