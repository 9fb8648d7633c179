"""JSON, YAML, zstd and printable text, read and written in one way by every stage."""
