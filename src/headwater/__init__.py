"""Headwater: events in over HTTP, never lost once acknowledged; tables and lineage out.

Importing this package is cheap and pulls in no stage: neither the server nor Spark.
ARCHITECTURE.md has a map of the stages; comments cite the promises of docs/promises.md by number (G1 to G12).
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
