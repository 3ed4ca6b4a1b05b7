"""Who can't reach whom in a test's cluster.  links.py and tree_link.py see to it that they don't.

The nodes are the brokers and the tree that they share, which takes the place of ZooKeeper.  A partition is a set of
cuts, each of one direction between two nodes; several partitions add up.  A slowness delays what is sent over such
ways, and they add up, too.  Clients are no nodes: they reach all brokers.
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
Cut = tuple[Node, Node]  # What the first sends does not reach the second.

NO_CUTS: frozenset[Cut] = frozenset()
Delays = Mapping[Cut, float]
NO_DELAYS: Delays = MappingProxyType({})


class Partition:
    """A partition, or a slow network, that is in force until `heal`, or the end of its `with`.

    `delays` has by how many seconds what is sent arrives later.
    """

    def __init__(
        self, network: Network, cuts: frozenset[Cut], healed: Callable[[], None], delays: Delays = NO_DELAYS
    ) -> None:
        self.cuts = cuts
        self.delays = delays
        self._network = network
        self._healed = healed

    def heal(self) -> None:
        """Mends what this partition has cut or slowed, and waits as `Cluster.heal` does; once more, it does nothing."""
        if self._network.remove(self):
            self._healed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.heal()
        else:
            self._network.remove(self)  # Whoever fails is not kept waiting, nor told of something else.


class Network:
    """All partitions of one cluster.  Its methods may be called from any thread."""

    def __init__(self, brokers: int) -> None:
        self.nodes: Side = frozenset((*map(BrokerId, range(1, brokers + 1)), Shared.TREE))
        self.cuts = NO_CUTS  # Those of all partitions; replaced and never changed, so that it is read without the lock.
        self.delays = NO_DELAYS  # Those of all, in the same way.
        self.ports: dict[int, BrokerId] = {}
        self._partitions: list[Partition] = []
        self._ways: dict[Callable[[], None], None] = {}
        self._lock = threading.Lock()

    def is_cut(self, one: Node, other: Node) -> bool:
        """True if nothing that needs an answer gets through between the two."""
        return (one, other) in self.cuts or (other, one) in self.cuts

    def add_way(self, changed: Callable[[], None]) -> None:
        """Has `changed` called when the cuts have; it returns when they are in force."""
        with self._lock:
            self._ways[changed] = None

    def remove_way(self, changed: Callable[[], None]) -> None:
        with self._lock:
            self._ways.pop(changed, None)

    def add(self, cuts: frozenset[Cut], healed: Callable[[], None], delays: Delays = NO_DELAYS) -> Partition:
        """Returns when it is in force; `healed` is called when it was healed by itself."""
        partition = Partition(self, cuts, healed, delays)
        with self._lock:
            self._partitions.append(partition)
        self._change()
        return partition

    def remove(self, partition: Partition) -> bool:
        """Returns False if it was not in force."""
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
            self.cuts = NO_CUTS.union(*(one.cuts for one in self._partitions))
            delays = defaultdict[Cut, float](float)
            for one in self._partitions:
                for way, seconds in one.delays.items():
                    delays[way] += seconds
            self.delays = dict(delays)
            ways = list(self._ways)
        for changed in ways:  # Without the lock, as each waits for another thread.
            changed()


def cuts_between(sides: Sequence[Side], nodes: Side, *, one_way: bool) -> frozenset[Cut]:
    """Returns what is cut between sides; one alone is cut off from all other nodes.  Raises ValueError.

    One way: what the first side sends does not reach the others.
    """
    for side in sides:
        if unknown := side - nodes:
            raise ValueError(f"there is no broker {', '.join(map(str, unknown))}")
    if len(sides) == 1:
        sides = [sides[0], nodes - sides[0]]
    if len(sides) < 2 or not all(sides):
        raise ValueError("a partition has two sides, and somebody on each of them")
    if any(one & other for one, other in combinations(sides, 2)):
        raise ValueError("nobody is on two sides of one partition")
    pairs = [(sides[0], other) for other in sides[1:]] if one_way else permutations(sides, 2)
    return NO_CUTS.union(*(product(*pair) for pair in pairs))
