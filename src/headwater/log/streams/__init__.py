"""One queue for each stream destination. Start reading at `queues.Queues`."""
