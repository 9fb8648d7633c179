"""Chooses what of a neighbourhood is drawn: boxes up to the depth, and stacks for many siblings.

A box stands for one dataset or job. More than `SIBLINGS` datasets upstream or downstream of one box become a
stack behind those that events mentioned last; grouped by namespace, all datasets of a namespace at one
distance do. A screen never has more than `MAX_BOXES` boxes: beyond them, everything is in stacks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headwater.graph.query.answers import DatasetNode, JobNode, Neighbourhood, Trace, UpOrDown, directions
from headwater.page.lineage_graph.layout import Work, uncounted
from headwater.page.lineage_graph.request import GraphRequest

SIBLINGS = 8  # of one box that are drawn one by one
MAX_BOXES = 60

Node = DatasetNode | JobNode


class Stack(NamedTuple):
    """Datasets or jobs that one box stands for; `id` names it in addresses."""

    id: str
    parent: str
    direction: UpOrDown
    members: list[Node]
    namespace: str = ""

    @property
    def namespaces(self) -> list[tuple[str, int]]:
        """The namespaces of the members with their numbers, the largest first."""
        counts: dict[str, int] = defaultdict(int)
        for node in self.members:
            counts[node.namespace] += 1
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class Adjacency:
    """Which boxes lead to which, as sets of bits: jobs times inputs times outputs can be millions."""

    def __init__(self, found: Neighbourhood, trace: Trace | None, *, with_jobs: bool, work: Work) -> None:
        datasets: list[Node] = list({node.key: node for node in found.datasets}.values())
        known = {node.key for node in datasets}
        datasets += [node for node in (trace.datasets if trace else ()) if node.key not in known]
        self.jobs = {job.key: job for job in (*found.jobs, *(trace.jobs if trace else ()))}
        self.nodes = [*datasets, *self.jobs.values()] if with_jobs else datasets
        self.numbers = {node.key: number for number, node in enumerate(self.nodes)}
        self.after = [0] * len(self.nodes)
        self.before = [0] * len(self.nodes)
        self.readers: dict[str, set[str]] = defaultdict(set)  # the jobs of a dataset
        self.writers: dict[str, set[str]] = defaultdict(set)
        self.current: set[tuple[str, str]] = set()  # edges that the latest run of the job mentioned
        self.failed: set[tuple[str, str]] = set()  # job and dataset: all runs that wrote it failed
        self.without_job: dict[tuple[str, str], bool] = {}
        inputs: dict[str, int] = defaultdict(int)
        outputs: dict[str, int] = defaultdict(int)
        for edge in found.edges:
            work(1)
            if edge.current:
                self.current.add((edge.source, edge.target))
            if edge.failed:
                self.failed.add((edge.source, edge.target))
            if edge.target in self.jobs:
                self.readers[edge.source].add(edge.target)
                inputs[edge.target] |= 1 << self.numbers[edge.source]
            elif edge.source in self.jobs:
                self.writers[edge.target].add(edge.source)
                outputs[edge.source] |= 1 << self.numbers[edge.target]
            else:
                self.without_job[edge.source, edge.target] = edge.current
                self._lead(edge.source, edge.target)
        if with_jobs:
            for edge in found.edges:
                if edge.source in self.numbers and edge.target in self.numbers:
                    self._lead(edge.source, edge.target)
        else:
            for key, number in self.numbers.items():
                work(1 + len(self.readers[key]) + len(self.writers[key]))
                for job in self.readers[key]:
                    self.after[number] |= outputs[job]
                for job in self.writers[key]:
                    self.before[number] |= inputs[job]
                self.after[number] &= ~(1 << number)
                self.before[number] &= ~(1 << number)
        self.traced_after = [0] * len(self.nodes)
        self.traced_before = [0] * len(self.nodes)
        for source, target in _traced_pairs(trace):
            if source in self.numbers and target in self.numbers and source != target:
                one, other = self.numbers[source], self.numbers[target]
                self.traced_after[one] |= 1 << other
                self.traced_before[other] |= 1 << one

    def _lead(self, source: str, target: str) -> None:
        one, other = self.numbers[source], self.numbers[target]
        if one != other:
            self.after[one] |= 1 << other
            self.before[other] |= 1 << one


def _traced_pairs(trace: Trace | None) -> Iterator[tuple[str, str]]:
    if trace is not None:
        yield from ((edge.source, edge.target) for edge in trace.column_edges)
        yield from ((gap.source, gap.target) for gap in trace.gaps)


class Scene(NamedTuple):
    """The boxes and stacks of a drawing; `hidden` boxes have neighbours upstream or downstream, not drawn."""

    nodes: list[Node]
    stacks: list[Stack]
    hidden: dict[str, set[UpOrDown]]
    graph: Adjacency

    @property
    def datasets(self) -> list[str]:
        """The keys of the datasets that have a box."""
        return [node.key for node in self.nodes if isinstance(node, DatasetNode)]


def collapse(
    found: Neighbourhood, trace: Trace | None, request: GraphRequest, work: Work = uncounted
) -> Scene:
    """The boxes and stacks that show the neighbourhood of a request."""
    graph = Adjacency(found, trace, with_jobs=request.with_jobs, work=work)
    search = _Collapse(graph, request, work)
    ways = directions(request.direction)
    if trace is not None:
        search.add(trace.dataset)
        search.expand([trace.dataset], ("up", "down"), len(graph.nodes), traced=True)
    if found.start in graph.numbers:
        search.add(found.start)
        steps = 2 * request.depth if request.with_jobs else request.depth
        search.expand([found.start], ways, steps)
    for key in request.expanded:
        if key in search.visible:
            search.expand([key], ("up", "down"), 2 if request.with_jobs else 1)
    for key in request.shown:  # also one that nothing else leads to
        if key in graph.numbers and key not in search.visible:
            search.add(key)
    return search.scene()


class _Collapse:
    def __init__(self, graph: Adjacency, request: GraphRequest, work: Work) -> None:
        self._graph = graph
        self._request = request
        self._work = work
        self._is_unlimited = "all" in request.opened or "all" in request.shown
        self._drawn = self._placed = 0  # boxes, and boxes or members of stacks, as bits
        self.visible: dict[str, Node] = {}
        self._stacks: dict[str, Stack] = {}

    def add(self, key: str) -> None:
        """Give a node a box, out of its stack."""
        number = self._graph.numbers[key]
        self._drawn |= 1 << number
        self._placed |= 1 << number
        self.visible.setdefault(key, self._graph.nodes[number])
        for stack in self._stacks.values():
            stack.members[:] = [node for node in stack.members if node.key != key]

    def expand(
        self, starts: Sequence[str], ways: Iterable[UpOrDown], steps: int, *, traced: bool = False
    ) -> None:
        """Add what these boxes lead to, level by level."""
        for way in ways:
            levels = (
                (self._graph.traced_before if way == "up" else self._graph.traced_after)
                if traced
                else (self._graph.before if way == "up" else self._graph.after)
            )
            frontier = [self._graph.numbers[key] for key in starts]
            seen = 0
            for level in range(steps):
                stacked = self._placed & ~self._drawn
                found = [(number, levels[number] & ~seen & ~stacked) for number in frontier]
                if not any(mask for _, mask in found):
                    break
                frontier = []
                if self._request.group and not traced:
                    frontier = self._add_grouped(found, way, level)
                else:
                    for number, mask in found:
                        frontier += self._add_siblings(number, mask & ~seen, way)
                        seen |= mask
                for number in frontier:
                    seen |= 1 << number

    def _add_siblings(self, parent: int, mask: int, way: UpOrDown) -> list[int]:
        """Draw the first ones, and put the rest into a stack; returns those that are drawn."""
        numbers = list(_bits(mask))
        self._work(1 + len(numbers))
        drawn = [number for number in numbers if self._drawn >> number & 1]
        new = [number for number in numbers if not self._placed >> number & 1]
        new.sort(key=self._rank)
        most = len(new)
        if not self._is_unlimited and len(new) > SIBLINGS + 1:
            most = SIBLINGS
        most = min(most, max(0, MAX_BOXES - len(self.visible)))
        first = new[:most] + [n for n in new[most:] if self._graph.nodes[n].key in self._request.shown]
        for number in first:
            self.add(self._graph.nodes[number].key)
        rest = [number for number in new if not self._drawn >> number & 1]
        if rest:
            key = self._graph.nodes[parent].key
            self._stack(f"{key}:{way}", key, way, rest)
        return drawn + first

    def _add_grouped(self, found: list[tuple[int, int]], way: UpOrDown, level: int) -> list[int]:
        """Draw a stack for each namespace with several members; returns all members, drawn or not."""
        mask = 0
        for _, each in found:
            mask |= each
        numbers = list(_bits(mask))
        self._work(1 + len(numbers))
        groups: dict[str, list[int]] = defaultdict(list)
        for number in sorted(numbers, key=self._rank):
            if not self._placed >> number & 1:
                groups[self._graph.nodes[number].namespace].append(number)
        parent = self._graph.nodes[found[0][0]].key
        for namespace, members in groups.items():
            shown = [n for n in members if self._graph.nodes[n].key in self._request.shown]
            alone = members if len(members) == 1 and len(self.visible) < MAX_BOXES else shown
            for number in alone:
                self.add(self._graph.nodes[number].key)
            rest = [number for number in members if number not in alone]
            if rest:
                self._stack(f"{parent}:{way}:{level}:{namespace}", parent, way, rest, namespace)
        return numbers

    def _stack(self, id: str, parent: str, way: UpOrDown, numbers: list[int], namespace: str = "") -> None:
        members = [self._graph.nodes[number] for number in numbers]
        for number in numbers:
            self._placed |= 1 << number
        if id in self._stacks:
            self._stacks[id].members.extend(members)
        else:
            self._stacks[id] = Stack(id, parent, way, members, namespace)

    def _rank(self, number: int) -> tuple[bool, list[int], str, str]:
        """Failures first, then those that events mentioned last."""
        node = self._graph.nodes[number]
        latest = [-ord(character) for character in node.last_at or ""]
        return (not self._is_failing(node), latest, node.namespace, node.name)

    def _is_failing(self, node: Node) -> bool:
        return state_of(self._graph, node) in ("FAIL", "ABORT")

    def scene(self) -> Scene:
        """The boxes, the stacks with members, and which boxes have neighbours that are not drawn."""
        placed = self._placed
        hidden: dict[str, set[UpOrDown]] = {}
        for key in self.visible:
            number = self._graph.numbers[key]
            ways: set[UpOrDown] = set()
            if self._graph.before[number] & ~placed:
                ways.add("up")
            if self._graph.after[number] & ~placed:
                ways.add("down")
            if ways:
                hidden[key] = ways
        stacks = [stack for stack in self._stacks.values() if stack.members]
        return Scene(list(self.visible.values()), stacks, hidden, self._graph)


def state_of(graph: Adjacency, node: Node) -> str:
    """The state of a job's latest run; of a dataset, the worst among the jobs that write it."""
    if isinstance(node, JobNode):
        return node.state
    states = {graph.jobs[job].state for job in graph.writers.get(node.key, ()) if job in graph.jobs}
    return next((state for state in ("FAIL", "ABORT", "RUNNING", "COMPLETE") if state in states), "")


def _bits(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit
