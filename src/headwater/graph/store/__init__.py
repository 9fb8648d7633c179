"""The SQLite file of the graph, with one writer. Start reading at `database.GraphDatabase`."""
