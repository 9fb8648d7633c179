"""Destinations: tables, loads, ledgers and locks of the databases that store rows. Start at `base`."""
