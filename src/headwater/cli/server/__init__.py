"""Signals, limits, child processes and the watch over the pipeline, for `serve` and `up`."""
