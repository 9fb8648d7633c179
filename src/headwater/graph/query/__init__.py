"""Read-only queries, each bounded in time and size. Start reading at `query.GraphQuery`."""
