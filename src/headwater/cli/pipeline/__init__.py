"""`headwater pipeline`: run, stream, backfill. Start reading at `run`."""
