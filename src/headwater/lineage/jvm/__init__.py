"""The agent in the driver's JVM and its messages; start at agent.py."""
