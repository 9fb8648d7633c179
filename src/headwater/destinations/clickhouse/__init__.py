"""The destination ClickHouse. Start reading at `destination`."""
