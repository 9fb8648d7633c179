"""Lineage events of the log become rows of the graph. Start reading at `follower.LogFollower`."""
