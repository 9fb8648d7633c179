"""Refused events with their reasons, kept for replay. Start reading at `rejects.Rejects`."""
