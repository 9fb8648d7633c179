"""The parameters of a graph page: a graph has an address, with all that is open in it."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from headwater.graph.query.answers import LineageDirection
from headwater.page.views.view import Parameters

MAX_DEPTH = 5
MAX_KEYS = 100  # in one parameter of an address
_KEY = re.compile(r"[dj][0-9a-f]{1,16}|all")


class GraphRequest(NamedTuple):
    """Centre, direction, depth and traced column of a graph; `column` may be one of another dataset, `of`.

    `opened` boxes show their columns, `shown` ones are not part of a stack, `expanded` ones show their
    neighbours beyond the depth; `all` stands for all boxes. `stack` is listed in the panel.
    """

    namespace: str
    name: str
    kind: Literal["dataset", "job"] = "dataset"
    direction: LineageDirection = "both"
    depth: int = 1
    column: str | None = None
    of: tuple[str, str] = ("", "")
    opened: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    expanded: tuple[str, ...] = ()
    stack: str = ""
    jobs: bool = False
    group: bool = False

    @classmethod
    def read(cls, parameters: Parameters) -> GraphRequest:
        """The request that the parameters of an address describe."""
        namespace, name = parameters.get("namespace"), parameters.get("name")
        kind: Literal["dataset", "job"] = parameters.choice("kind", "dataset", "job")
        direction: LineageDirection = parameters.choice("direction", "both", "up", "down")
        return cls(
            namespace,
            name,
            kind,
            direction,
            max(1, min(MAX_DEPTH, parameters.number("depth", 1, 1_000))),
            parameters.get("column", "") or None,
            (parameters.get("of_namespace", namespace), parameters.get("of_name", name)),
            _keys(parameters.get("open", "")),
            _keys(parameters.get("show", "")),
            _keys(parameters.get("more", "")),
            parameters.get("stack", "")[:200],
            parameters.choice("jobs", "", "1") == "1",
            parameters.choice("group", "", "1") == "1",
        )

    @property
    def with_jobs(self) -> bool:
        """Jobs are boxes: always around a job, never in a trace, which leads from column to column."""
        return (self.jobs or self.kind == "job") and self.column is None

    @property
    def around(self) -> dict[str, str | None]:
        """The parameters of the address of the graph, without the column and the listed stack."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "kind": None if self.kind == "dataset" else self.kind,
            "direction": None if self.direction == "both" else self.direction,
            "depth": None if self.depth == 1 else str(self.depth),
            "open": ",".join(self.opened) or None,
            "show": ",".join(self.shown) or None,
            "more": ",".join(self.expanded) or None,
            "jobs": "1" if self.jobs else None,
            "group": "1" if self.group else None,
        }

    @property
    def here(self) -> dict[str, str | None]:
        """The parameters of this very address, with the column, without the listed stack."""
        if self.column is None:
            return self.around
        of_namespace, of_name = self.of
        return self.around | {"column": self.column, "of_namespace": of_namespace, "of_name": of_name}

    def with_toggled(self, name: Literal["open", "show", "more"], key: str) -> dict[str, str | None]:
        """The parameters of the address in which this box is opened or closed, shown, or expanded."""
        known = {"open": self.opened, "show": self.shown, "more": self.expanded}[name]
        changed = tuple(each for each in known if each != key) if key in known else (*known, key)
        return self.here | {name: ",".join(changed) or None}


def _keys(text: str) -> tuple[str, ...]:
    found = dict.fromkeys(key for key in text.split(",") if _KEY.fullmatch(key))
    return tuple(found)[-MAX_KEYS:]
