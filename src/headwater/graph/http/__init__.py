"""The graph as JSON under /api/v1/graph. Start reading at `endpoints`."""
