"""What authors of lineage extensions import. Start reading at `builders`."""
