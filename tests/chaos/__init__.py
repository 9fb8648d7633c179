"""Processes under load that are killed again and again; start reading at `crash`."""
