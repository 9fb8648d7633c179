"""Who says so: the `producer` of every event and facet."""

from __future__ import annotations

from headwater import __version__

__all__ = ["PRODUCER"]

PRODUCER = f"urn:headwater:lineage:{__version__}"
