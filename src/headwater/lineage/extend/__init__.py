"""The public names for extensions, as the modules of this package list them. Start reading at builders.py."""

from headwater.lineage.extend import (
    builders,
    declared,
    facet_registry,
    lineage_nodes,
    spark_objects,
)
from headwater.lineage.extend.builders import *  # noqa: F403
from headwater.lineage.extend.declared import *  # noqa: F403
from headwater.lineage.extend.facet_registry import *  # noqa: F403
from headwater.lineage.extend.lineage_nodes import *  # noqa: F403
from headwater.lineage.extend.spark_objects import *  # noqa: F403
from headwater.lineage.jvm.plan import Node, Plan
from headwater.lineage.naming.names import DatasetId
from headwater.lineage.runs import Run

__all__ = ["DatasetId", "Node", "Plan", "Run"]
__all__ += builders.__all__ + declared.__all__
__all__ += facet_registry.__all__ + lineage_nodes.__all__ + spark_objects.__all__
