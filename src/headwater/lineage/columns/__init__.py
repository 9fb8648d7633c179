"""A plan becomes a graph of column dependencies (G11). Start reading at lineage.py."""
