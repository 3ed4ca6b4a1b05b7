"""Delayed registration of a broker that may have lost records, until no ISR relies on it.

Records may be lost through a power failure or with a log. The broker joined its ISRs when it had all their committed
records. A controller that notices the broker's absence removes it from ISRs that have other members, and elects one of
these members. A controller that does not notice would keep it as the leader, and others would truncate records that it
lacks. (KIP-966 notifies the controllers of KRaft.) The broker therefore registers after its removal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable

from odradek.base.units import SECOND_MS, BrokerId, TopicPartition
from odradek.coordination import tree_layout as layout
from odradek.coordination.isr_updates import partitions_relying_on
from odradek.coordination.tree import Tree

_LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.1


async def await_replacement(
    tree: Tree,
    broker: BrokerId,
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
    missing: Collection[TopicPartition] = (),
) -> None:
    """Wait until no ISR relies on records that the broker may lack, as decided by UncleanShutdownWait.

    Blocks the loop only while it reads the tree.
    """
    wait = UncleanShutdownWait(broker, partitions, timeout_ms, missing)
    while not wait.is_over(tree, time.monotonic()):
        await asyncio.sleep(POLL_SECONDS)  # A waiting start can be cancelled.


class UncleanShutdownWait:
    """Wait of a starting broker that may lack records that others rely on.

    The broker waits while an ISR of `partitions` contains it and others. The wait ends:

    - if no other broker is registered, because one of the brokers that failed together must be the first. Only a broker
      certain that partitions are `missing` gives others a quarter of `timeout_ms` to register.
    - after `timeout_ms` at most. A controller removes an absent broker once its session has expired; without a
      controller, no broker does.
    """

    def __init__(
        self,
        broker: BrokerId,
        partitions: Iterable[TopicPartition],
        timeout_ms: int,
        missing: Collection[TopicPartition] = (),
    ) -> None:
        self._broker = broker
        self._left = list(partitions)
        self._timeout_seconds = timeout_ms / SECOND_MS
        self._certain = frozenset(missing)
        self._waiting_since: float | None = None  # Time at which waiting began.

    def is_over(self, tree: Tree, now: float) -> bool:
        """Return whether the broker may register; `now` is in seconds of a monotonic clock.

        Raises the tree's exceptions.
        """
        self._left = partitions_relying_on(tree, self._broker, self._left)
        waited = 0.0 if self._waiting_since is None else now - self._waiting_since
        may_register = waited < self._timeout_seconds / 4 and not self._certain.isdisjoint(self._left)
        if not self._left or not (may_register or _has_others(tree, self._broker)):
            return True
        if self._waiting_since is None:
            self._waiting_since = now
            text = "unclean shutdown: broker %d waits until it is removed from the ISR of %d partitions, including %s"
            _LOG.warning(text, self._broker, len(self._left), self._left[0])
        if waited > self._timeout_seconds:
            text = "broker %d starts although it is still in the ISR of %d partitions: no controller removed it in time"
            _LOG.warning(text, self._broker, len(self._left))
            return True
        return False


def _has_others(tree: Tree, broker: BrokerId) -> bool:
    return any(name != str(broker) for name in tree.children(layout.BROKER_IDS))
