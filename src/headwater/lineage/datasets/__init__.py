"""Plan nodes and RDDs become datasets. Start reading at query.py."""
