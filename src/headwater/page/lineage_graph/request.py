"""The parameters of a graph page."""

from __future__ import annotations

from typing import Literal, NamedTuple

from headwater.graph.query.answers import LineageDirection
from headwater.page.parameters import Parameters

MAX_DEPTH = 5


class GraphRequest(NamedTuple):
    """Centre, direction, depth and traced column of a graph; `column` may be one of another dataset, `of`."""

    kind: Literal["dataset", "job"]
    namespace: str
    name: str
    direction: LineageDirection
    depth: int
    column: str | None
    of: tuple[str, str]

    @classmethod
    def read(cls, parameters: Parameters) -> GraphRequest:
        """The request that the parameters of an address describe."""
        namespace, name = parameters.get("namespace"), parameters.get("name")
        kind: Literal["dataset", "job"] = parameters.choice("kind", "dataset", "job")
        direction: LineageDirection = parameters.choice("direction", "both", "up", "down")
        return cls(
            kind,
            namespace,
            name,
            direction,
            max(1, min(MAX_DEPTH, parameters.number("depth", 3, 1_000))),
            parameters.get("column", "") or None,
            (parameters.get("of_namespace", namespace), parameters.get("of_name", name)),
        )

    @property
    def around(self) -> dict[str, str | None]:
        """The parameters of its address without the column."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "kind": None if self.kind == "dataset" else self.kind,
            "direction": None if self.direction == "both" else self.direction,
            "depth": str(self.depth),
        }
