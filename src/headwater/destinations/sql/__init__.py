"""Loads of rows into SQL databases. Start reading at `sql_destination`."""
