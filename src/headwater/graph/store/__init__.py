"""The database of the graph, graph.db. Start reading at `database`."""
