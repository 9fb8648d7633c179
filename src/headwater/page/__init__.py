"""Stage 7: the graph and the way of the events, shown to people in a browser."""
