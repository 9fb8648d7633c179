"""A graph of jobs, runs, datasets and columns, built from OpenLineage events.

`ingest` parses events, `store` writes their rows, `query` reads them, `http` and `marquez` serve the answers.
Start reading at `ingest.follower`.
"""
