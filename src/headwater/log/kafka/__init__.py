"""Kafka in place of event files and queues. Start reading at `topics.Topics`."""
