"""Facets of runs, jobs and datasets. Start reading at make.py."""
