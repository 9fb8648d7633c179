"""The datasets of plan nodes and RDDs. Start reading at query.py."""
