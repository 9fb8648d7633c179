"""Read-only queries over the graph. Start reading at `query.GraphQuery`."""
