"""Stream mode: ranges of positions become rows. Start reading at `stream`."""
