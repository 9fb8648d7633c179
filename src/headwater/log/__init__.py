"""Stage 2: keeps acknowledged events in order until every reader has them. Start reading at `event_sink`."""
