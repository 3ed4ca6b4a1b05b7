"""A broker that may have lost records, to a power failure or with a log, is there again once nobody relies on it.

The ISRs that it is in were written when it had all that they promise.  A controller that sees it gone takes it out of
those that have others, and elects one of these; one that does not see that would have it lead on, and others cut off
what it lacks (KIP-966 tells the controllers of KRaft).  So it registers after that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable

from odradek.base.units import SECOND_MS, BrokerId, TopicPartition
from odradek.coordination import tree_layout as layout
from odradek.coordination.isrs import relied_on
from odradek.coordination.tree import Tree

_LOG = logging.getLogger(__name__)

LOOK_SECONDS = 0.1


async def await_replacement(
    tree: Tree,
    broker: BrokerId,
    partitions: Iterable[TopicPartition],
    patience_ms: int,
    lacking: Collection[TopicPartition] = (),
) -> None:
    """Waits until nobody relies on what the broker may lack of `partitions`, as Doubt has it; only its looks block."""
    doubt = Doubt(broker, partitions, patience_ms, lacking)
    while not doubt.is_over(tree, time.monotonic()):
        await asyncio.sleep(LOOK_SECONDS)  # A start that waits may be given up.


class Doubt:
    """Whether a broker that starts may lack what others rely on: some ISR of `partitions` has it beside others.

    Not if no other broker is there: one of those that were lost together has to be the first.  Only who is `lacking`
    some of them for certain gives the others a quarter of `patience_ms` to come.  Nor longer than `patience_ms`: a
    controller takes out who is gone once its session has ended, and only if there is none nobody does.
    """

    def __init__(
        self,
        broker: BrokerId,
        partitions: Iterable[TopicPartition],
        patience_ms: int,
        lacking: Collection[TopicPartition] = (),
    ) -> None:
        self._broker = broker
        self._left = list(partitions)
        self._patience = patience_ms / SECOND_MS
        self._certain = frozenset(lacking)
        self._begun: float | None = None  # When it began to wait.

    def is_over(self, tree: Tree, now: float) -> bool:
        """`now` is in seconds, on any clock that is not set.  Raises as the tree does."""
        self._left = relied_on(tree, self._broker, self._left)
        waited = 0.0 if self._begun is None else now - self._begun
        may_come = waited < self._patience / 4 and not self._certain.isdisjoint(self._left)
        if not self._left or not (may_come or _has_others(tree, self._broker)):
            return True
        if self._begun is None:
            self._begun = now
            text = (
                "broker %d may have lost records, and waits until it is out of the ISRs of %d partitions, %s among them"
            )
            _LOG.warning(text, self._broker, len(self._left), self._left[0])
        if waited > self._patience:
            text = "nobody takes broker %d out of the ISRs of %d partitions: it starts"
            _LOG.warning(text, self._broker, len(self._left))
            return True
        return False


def _has_others(tree: Tree, broker: BrokerId) -> bool:
    return any(name != str(broker) for name in tree.children(layout.BROKER_IDS))
