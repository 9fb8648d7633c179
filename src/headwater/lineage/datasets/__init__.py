"""The datasets of plan nodes and RDDs. Start reading at plan_visits.py."""
