"""Runs become OpenLineage events; start at build.py."""
