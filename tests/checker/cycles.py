"""Circles of dependencies between transactions.

T1 comes before T2 if T2 wrote next to a key after it (ww), if T2 read what T1 wrote (wr), or if T1 read up to where T2
wrote next (rw).  Kafka's transactions give no order to writes: of two that are open at once, each may be the first in
one of two partitions (G0).  But nobody reads before the commit, so no two can read of each other (G1c).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from checker.anomaly import Anomaly, Found
from checker.history import Key, Kind, Offset, Operation
from checker.observed import Observed

Node = int  # The number of an operation.
WAYS_TRIED_MAX = 100  # To find a circle in one component, or a shorter one; more would only take longer.


class Edge(StrEnum):
    WW = "ww"
    WR = "wr"
    RW = "rw"


@dataclass(frozen=True, slots=True)
class Reason:
    edge: Edge
    text: str


class Graph:
    """Of two edges between the same two nodes, the first of each kind is kept."""

    def __init__(self) -> None:
        self.edges: dict[Node, dict[Node, dict[Edge, Reason]]] = defaultdict(dict)

    def add(self, source: Node, target: Node, reason: Reason) -> None:
        if source != target:
            self.edges[source].setdefault(target, {}).setdefault(reason.edge, reason)

    def of(self, kinds: Collection[Edge]) -> Mapping[Node, list[Node]]:
        """Successors by edges of these kinds."""
        return {
            source: [target for target, reasons in targets.items() if not reasons.keys().isdisjoint(kinds)]
            for source, targets in self.edges.items()
        }

    def is_of(self, circle: list[Node], kind: Edge) -> bool:
        return all(kind in self.edges[source][target] for source, target in _pairs(circle))

    def found(self, observed: Observed, anomaly: Anomaly, circle: list[Node], kinds: Sequence[Sequence[Edge]]) -> Found:
        """`kinds` says of which kinds the first edge is, the second, and so on; the last holds for all that follow."""
        steps = [str(observed.operations[circle[0]])]
        for place, (source, target) in enumerate(_pairs(circle)):
            reasons = self.edges[source][target]
            reason = next(reasons[kind] for kind in kinds[min(place, len(kinds) - 1)] if kind in reasons)
            steps.append(f"-{reason.edge} ({reason.text})-> {observed.operations[target]}")
        return Found(anomaly, " ".join(steps), tuple(observed.operations[node] for node in circle))


def _pairs(circle: list[Node]) -> Iterator[tuple[Node, Node]]:
    """The edges of a circle that names each node once."""
    return zip(circle, [*circle[1:], circle[0]], strict=True)


def cycles(observed: Observed) -> Iterator[Found]:
    """One of each kind for each component that has it."""
    graph = dependencies(observed)
    for anomaly, kinds in ((Anomaly.G0, (Edge.WW,)), (Anomaly.G1C, (Edge.WR,))):
        successors = graph.of(kinds)
        for component in components(successors):
            yield graph.found(observed, anomaly, _any_circle(successors, component), [kinds])
    yield from _reads_and_writes(observed, graph)
    yield from _anti_dependent(observed, graph)


def dependencies(observed: Observed) -> Graph:
    graph = Graph()
    transactions = {
        operation.number
        for operation in observed.operations
        if operation.kind is Kind.TXN and any(True for _ in operation.steps) and _happened(observed, operation)
    }
    writers: dict[Key, list[tuple[Offset, Node]]] = {}
    for key, places in observed.committed_places():
        found = [(offset, observed.writes[value].operation.number) for offset, value in places]
        writers[key] = [(offset, node) for offset, node in found if node in transactions]
        for (before, source), (after, target) in zip(writers[key], writers[key][1:], strict=False):
            graph.add(source, target, Reason(Edge.WW, f"{key}@{before} before @{after}"))
    for operation in observed.operations:
        if operation.number in transactions:
            _add_reads(graph, observed, operation, writers, transactions)
    return graph


def _happened(observed: Observed, operation: Operation) -> bool:
    """One that only read may always be taken to have."""
    sends = list(operation.sends)
    return not sends or any(observed.is_committed(send.value) for send in sends)


def _add_reads(
    graph: Graph,
    observed: Observed,
    operation: Operation,
    writers: Mapping[Key, list[tuple[Offset, Node]]],
    transactions: Collection[Node],
) -> None:
    last: dict[Key, Offset] = {}
    for poll in operation.polls:
        for key, offset, value in poll.records:
            write = observed.writes.get(value)
            if write is not None and write.operation.number in transactions:
                text = f"read {value} at {key}@{offset}"
                graph.add(write.operation.number, operation.number, Reason(Edge.WR, text))
            last[key] = max(offset, last.get(key, offset))
    for key, offset in last.items():
        following = bisect_right(writers.get(key, []), offset, key=lambda place: place[0])
        if following < len(writers.get(key, [])):
            after, target = writers[key][following]
            graph.add(operation.number, target, Reason(Edge.RW, f"read {key}@{offset}, and @{after} came next"))


def _reads_and_writes(observed: Observed, graph: Graph) -> Iterator[Found]:
    kinds = (Edge.WW, Edge.WR)
    both, reads = graph.of(kinds), graph.of((Edge.WR,))
    for component in components(both):
        circle = _closed(reads, both, component)
        if circle is not None and not graph.is_of(circle, Edge.WR):
            yield graph.found(observed, Anomaly.G1C_WW, circle, [(Edge.WR,), kinds])


def _anti_dependent(observed: Observed, graph: Graph) -> Iterator[Found]:
    kinds = (Edge.WR, Edge.WW)
    plain, changed, full = graph.of(kinds), graph.of((Edge.RW,)), graph.of(tuple(Edge))
    for component in components(full):
        if circle := _closed(changed, plain, component):
            yield graph.found(observed, Anomaly.G_SINGLE, circle, [(Edge.RW,), kinds])
        elif not any(one <= component for one in components(plain)):
            yield graph.found(observed, Anomaly.G2, _any_circle(full, component), [(*kinds, Edge.RW)])


def _any_circle(successors: Mapping[Node, list[Node]], component: Collection[Node]) -> list[Node]:
    """A short one, if there are not too many."""
    starts = sorted(component)[:WAYS_TRIED_MAX]
    circles = (shortest_path(successors, start, start, component) for start in starts)
    return min((circle for circle in circles if circle is not None), key=len)


def _closed(
    firsts: Mapping[Node, list[Node]], rest: Mapping[Node, list[Node]], component: Collection[Node]
) -> list[Node] | None:
    """A circle in the component of one edge of `firsts`, and for the rest of `rest`."""
    tried = 0
    for source in sorted(component):
        for target in firsts.get(source, ()):
            if target not in component:
                continue
            if (way := shortest_path(rest, target, source, component)) is not None:
                return [source, *way]
            tried += 1
            if tried == WAYS_TRIED_MAX:
                return None
    return None


def shortest_path(
    successors: Mapping[Node, list[Node]], source: Node, target: Node, within: Collection[Node]
) -> list[Node] | None:
    """Nodes from source on, without the target; of a circle (source is target) all of it.  None if there is no way."""
    previous: dict[Node, Node] = {}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for following in successors.get(node, ()):
            if following == target:
                path = [node]
                while path[-1] != source:
                    path.append(previous[path[-1]])
                return path[::-1]
            if following in within and following not in previous and following != source:
                previous[following] = node
                queue.append(following)
    return None


def components(successors: Mapping[Node, list[Node]]) -> list[frozenset[Node]]:
    """Strongly connected components of two nodes or more: Tarjan's algorithm, without recursion."""
    return _Tarjan(successors).run()


class _Tarjan:
    def __init__(self, successors: Mapping[Node, list[Node]]) -> None:
        self._successors = successors
        self._index: dict[Node, int] = {}
        self._low: dict[Node, int] = {}
        self._stack: list[Node] = []
        self._on_stack: set[Node] = set()
        self._found: list[frozenset[Node]] = []

    def run(self) -> list[frozenset[Node]]:
        for root in self._successors:
            if root not in self._index:
                self._visit(root)
        return self._found

    def _visit(self, root: Node) -> None:
        work = [(root, self._enter(root))]
        while work:
            node, left = work[-1]
            following = next(left, None)
            if following is None:
                work.pop()
                self._leave(node)
                if work:
                    parent = work[-1][0]
                    self._low[parent] = min(self._low[parent], self._low[node])
            elif following not in self._index:
                work.append((following, self._enter(following)))
            elif following in self._on_stack:
                self._low[node] = min(self._low[node], self._index[following])

    def _enter(self, node: Node) -> Iterator[Node]:
        self._index[node] = self._low[node] = len(self._index)
        self._stack.append(node)
        self._on_stack.add(node)
        return iter(self._successors.get(node, ()))

    def _leave(self, node: Node) -> None:
        if self._low[node] != self._index[node]:
            return
        component = [self._stack.pop()]
        while component[-1] != node:
            component.append(self._stack.pop())
        self._on_stack.difference_update(component)
        if len(component) > 1:
            self._found.append(frozenset(component))
