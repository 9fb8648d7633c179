"""Event files for batch mode, one active file per token. Start reading at `incoming.Incoming`."""
