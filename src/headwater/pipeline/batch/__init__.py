"""Batch mode: complete event files become rows. Start reading at `cycle`."""
