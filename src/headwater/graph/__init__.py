"""A graph of jobs, runs, datasets and columns, built from OpenLineage events.

Start reading at `ingest.follower`; an event passes `ingest`, `store`, `query` and `http`, in this order.
"""
