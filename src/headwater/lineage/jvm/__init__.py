"""The agent in the driver's JVM and its messages. Start reading at agent.py."""
