"""Reachability between the nodes of a test cluster; links.py and tree_link.py enforce it.

The nodes are the brokers and their shared metadata tree, which takes the place of ZooKeeper. A partition is a set of
cuts, each in one direction between two nodes; several partitions are combined. A slowdown delays data in such
directions; delays are added. Clients are not nodes: they reach all brokers.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import combinations, permutations, product
from types import MappingProxyType, TracebackType
from typing import Self

from odradek.base.units import BrokerId


class Shared(Enum):
    TREE = "the metadata tree"


Node = BrokerId | Shared
Side = frozenset[Node]
Cut = tuple[Node, Node]  # Data of the first node does not reach the second.

NO_CUTS: frozenset[Cut] = frozenset()
Delays = Mapping[Cut, float]
NO_DELAYS: Delays = MappingProxyType({})


class Partition:
    """A network partition or slowdown that lasts until `heal` or the end of its `with` block.

    `delays` contains the delay of each direction in seconds.
    """

    def __init__(
        self, network: Network, cuts: frozenset[Cut], on_healed: Callable[[], None], delays: Delays = NO_DELAYS
    ) -> None:
        self.cuts = cuts
        self.delays = delays
        self._network = network
        self._on_healed = on_healed

    def heal(self) -> None:
        """Heal this partition or slowdown and wait as `Cluster.heal` does; do nothing the second time."""
        if self._network.remove(self):
            self._on_healed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.heal()
        else:
            self._network.remove(self)  # A failing test neither waits nor gets a second error.


class Network:
    """All partitions of one cluster; its methods may be called from any thread."""

    def __init__(self, brokers: int) -> None:
        self.nodes: Side = frozenset((*map(BrokerId, range(1, brokers + 1)), Shared.TREE))
        self.cuts = NO_CUTS  # The union of all partitions. It is replaced, never modified, so reading needs no lock.
        self.delays = NO_DELAYS  # The sum of all delays, replaced in the same way.
        self.ports: dict[int, BrokerId] = {}
        self._partitions: list[Partition] = []
        self._listeners: dict[Callable[[], None], None] = {}
        self._lock = threading.Lock()

    def is_cut(self, one: Node, other: Node) -> bool:
        """Return whether a cut in either direction prevents answers between the two nodes."""
        return (one, other) in self.cuts or (other, one) in self.cuts

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Register `listener`, which is called after a change of cuts and returns when they take effect."""
        with self._lock:
            self._listeners[listener] = None

    def remove_listener(self, listener: Callable[[], None]) -> None:
        with self._lock:
            self._listeners.pop(listener, None)

    def add(self, cuts: frozenset[Cut], on_healed: Callable[[], None], delays: Delays = NO_DELAYS) -> Partition:
        """Add a partition and return it when it takes effect; `on_healed` is called after it is healed."""
        partition = Partition(self, cuts, on_healed, delays)
        with self._lock:
            self._partitions.append(partition)
        self._change()
        return partition

    def remove(self, partition: Partition) -> bool:
        """Remove a partition; return False if it was not active."""
        with self._lock:
            if partition not in self._partitions:
                return False
            self._partitions.remove(partition)
        self._change()
        return True

    def clear(self) -> None:
        with self._lock:
            self._partitions.clear()
        self._change()

    def _change(self) -> None:
        with self._lock:
            self.cuts = NO_CUTS.union(*(partition.cuts for partition in self._partitions))
            delays = defaultdict[Cut, float](float)
            for partition in self._partitions:
                for cut, seconds in partition.delays.items():
                    delays[cut] += seconds
            self.delays = dict(delays)
            listeners = list(self._listeners)
        for listener in listeners:  # Without the lock, because each call waits for another thread.
            listener()


def cuts_between(sides: Sequence[Side], nodes: Side, *, one_way: bool) -> frozenset[Cut]:
    """Return the cuts between sides; a single side is cut off from all other nodes.

    With one_way, data of the first side does not reach the others. Raise ValueError.
    """
    for side in sides:
        if unknown := side - nodes:
            raise ValueError(f"unknown broker {', '.join(map(str, unknown))}")
    if len(sides) == 1:
        sides = [sides[0], nodes - sides[0]]
    if len(sides) < 2 or not all(sides):
        raise ValueError("a partition must have at least two sides, each with a broker")
    if any(one & other for one, other in combinations(sides, 2)):
        raise ValueError("a broker must not be on two sides of a partition")
    pairs = [(sides[0], other) for other in sides[1:]] if one_way else permutations(sides, 2)
    return NO_CUTS.union(*(product(*pair) for pair in pairs))
