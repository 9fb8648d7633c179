"""Lineage, runs and rejects for assistants. Start reading at `server`, which needs the extra `mcp`."""
