"""Column lineage: a plan becomes a graph of column dependencies (G11). Start at column_graph.py."""
