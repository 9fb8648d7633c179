"""Which node's columns a command writes, and under which names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.lineage.plan import Node, Plan

__all__ = ["Written", "written_by"]


class Written(msgspec.Struct, frozen=True):
    """The columns of a plan's node as they arrive in the dataset.

    `names` are the dataset's columns by position (None: the node's own; an empty name: not written), or, with
    `by_name`, the columns that it has: others, such as the row operation of a MERGE, are not written.
    """

    node: int
    names: Sequence[str] | None = None
    by_name: bool = False


def written_by(plan: Plan, node: Node) -> Written:
    """What a command writes; of a node that is no command, its own columns."""
    if node.out or not (node.inner or node.kids):
        return Written(node.id)
    # V2 creates have the table's name as their first child, and the query as the last
    query = (node.inner or node.kids)[-1]
    if node.to:
        names = [attribute.name for attribute in node.to]
        by_name = len(names) != len(plan.nodes[query].out) or node.simple in ("ReplaceData", "WriteDelta")
        return Written(query, names, by_name)
    return Written(query)
