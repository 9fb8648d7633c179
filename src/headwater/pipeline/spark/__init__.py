"""The Spark session, its Java classes, and storage that executors share. Start reading at `session`."""
