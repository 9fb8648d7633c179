"""Ingests the lineage events of the log into the graph. Start reading at `follower.LogFollower`."""
