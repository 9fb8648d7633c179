"""`headwater demo`: events through outages into tables and lineage. Start reading at `command`."""
