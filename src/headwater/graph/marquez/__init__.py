"""The graph in the JSON of Marquez, read-only. Start reading at `endpoints`."""
