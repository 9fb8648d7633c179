"""`headwater lineage`: run, show, impact, runs, search, import. Start reading at `command`."""
