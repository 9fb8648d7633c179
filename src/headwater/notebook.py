"""Lineage in a notebook: `lineage("daily.total")` as the last line of a cell shows the tree.

It reads the graph of `headwater.yml`, or of the configuration that is named, with or without a running
server.
"""

from __future__ import annotations

from pathlib import Path

import click

from headwater.cli.lineage.look_up import Lineage, look_up
from headwater.graph.query.answers import LineageDirection
from headwater.graph.query.query import GraphQuery
from headwater.settings import load

__all__ = ["LineageView", "lineage"]


class LineageView:
    """The lineage of a dataset or column, which a notebook and a terminal show as a tree."""

    def __init__(self, found: Lineage) -> None:
        self._text = "\n".join(click.unstyle(line) for line in found.lines())
        self._html = found.as_html()

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


def lineage(
    name: str,
    *,
    direction: LineageDirection = "both",
    depth: int | None = None,
    direct: bool = False,
    config: str | Path | None = None,
) -> LineageView:
    """Look up a dataset or a column by its name or the end of it, such as `orders` or `orders.price`.

    Raises HeadwaterError, with a hint, for a name that is unknown or stands for several.
    """
    with GraphQuery(load(config).graph_dir) as query:
        return LineageView(look_up(query, name, direction=direction, depth=depth, direct=direct))
