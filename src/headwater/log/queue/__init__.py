"""An ordered, durable queue in SQLite files. Start reading at `log.Log`."""
