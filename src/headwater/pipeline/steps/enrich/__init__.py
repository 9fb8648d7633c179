"""Enrichment rules: look up each distinct value of a field once, and add the results to the events."""
