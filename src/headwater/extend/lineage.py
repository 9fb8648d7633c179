"""The API of lineage extensions: builders, nodes with lineage, declared datasets and registered facets.

Needs pyspark and openlineage-python. The guide is docs/extending-lineage.md.
"""

from __future__ import annotations

from headwater.lineage import extend
from headwater.lineage.extend import *  # noqa: F403  # the list is extend.__all__

__all__ = extend.__all__
