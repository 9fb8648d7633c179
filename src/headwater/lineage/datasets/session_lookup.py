"""The settings of the application, and the lookup of tables in its session catalog."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headwater.lineage.jvm.agent import Agent, session_settings
from headwater.lineage.naming.catalogs import Surroundings

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["surroundings_of"]

logger = logging.getLogger(__name__)


def surroundings_of(context: SparkContext, agent: Agent | None) -> Surroundings:
    """The settings of the application, and lookups in its session catalog, which need the agent."""
    conf = dict(context.getConf().getAll())
    try:
        conf |= session_settings(context)
    except Exception as error:  # no session yet: its settings are read at the first use of a catalog
        logger.debug("The session's settings are not known yet: %s", error)
    lookup = agent.lookup_table if agent is not None else None
    return Surroundings(conf, read=lambda: session_settings(context), lookup=lookup)
