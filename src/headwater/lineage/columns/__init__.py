"""Column lineage: a plan becomes a graph of column dependencies (G11). Start at written_columns.py."""
