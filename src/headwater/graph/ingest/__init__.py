"""Lineage events become rows of the graph. Start reading at `follower`."""
