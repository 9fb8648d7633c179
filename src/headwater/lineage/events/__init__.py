"""The OpenLineage events of runs. Start reading at build.py."""
