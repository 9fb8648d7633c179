"""Lineage in a Python process: how it comes in, what it holds of Spark, how it learns the end and goes."""
