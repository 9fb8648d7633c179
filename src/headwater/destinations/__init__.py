"""Rows are stored: table structures, destinations, their ledgers and locks."""
