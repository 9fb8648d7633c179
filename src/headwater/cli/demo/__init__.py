"""`headwater demo`: events during outages, in tables, and their lineage. Start reading at `command`."""
