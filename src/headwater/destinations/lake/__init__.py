"""Destinations that store tables as files in an open format; the table's own log is the ledger."""
