"""The API of lineage extensions: builders, nodes with lineage, declared datasets and registered facets.

Needs pyspark and openlineage-python. The guide is docs/extending-lineage.md.
"""

from headwater.lineage.extend import *  # noqa: F403 - all public names of the package, and no others
from headwater.lineage.extend import __all__ as __all__
