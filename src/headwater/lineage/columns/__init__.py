"""Column lineage: from a plan to a graph of column dependencies (G11). Start reading at lineage.py."""
