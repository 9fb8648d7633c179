"""The log proved: each failure path, a model, a power cut at every write."""
