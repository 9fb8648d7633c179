"""Headwater: events in over HTTP, never lost once acknowledged; tables and lineage out.

Importing this package is cheap and pulls in no stage: neither the server nor Spark.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
