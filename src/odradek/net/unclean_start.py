"""A broker that may have lost records, to a power failure or with a log, is there again once nobody relies on it.

The ISRs that it is in were written when it had all that they promise.  A controller that sees it gone takes it out of
those that have others, and elects one of these; one that does not see that would have it lead on, and others cut off
what it lacks (KIP-966 tells the controllers of KRaft).  So it registers after that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable

from odradek.base.units import SECOND_MS, BrokerId, TopicPartition
from odradek.coordination import layout
from odradek.coordination.isrs import relied_on
from odradek.coordination.tree import Tree

_LOG = logging.getLogger(__name__)

LOOK_SECONDS = 0.1


def await_replacement(
    tree: Tree,
    broker: BrokerId,
    partitions: Iterable[TopicPartition],
    patience_ms: int,
    lacking: Collection[TopicPartition] = (),
) -> None:
    """Waits until no ISR of `partitions` has the broker beside others; all calls block.

    Not if no other broker is there: one of those that were lost together has to be the first.  Only who is `lacking`
    some of them for certain gives the others a quarter of `patience_ms` to come.  Nor longer than `patience_ms`: a
    controller takes out who is gone once its session has ended, and only if there is none nobody does.
    """
    begun = time.monotonic()
    until, alone_until = begun + patience_ms / SECOND_MS, begun + patience_ms / 4 / SECOND_MS
    certain = frozenset(lacking)
    left = relied_on(tree, broker, partitions)

    def is_for_others() -> bool:
        return has_others(tree, broker) or (time.monotonic() < alone_until and not certain.isdisjoint(left))

    if left and is_for_others():
        text = "broker %d may have lost records, and waits until it is out of the ISRs of %d partitions, %s among them"
        _LOG.warning(text, broker, len(left), left[0])
    while left and is_for_others():
        if time.monotonic() > until:
            _LOG.warning("nobody takes broker %d out of the ISRs of %d partitions: it starts", broker, len(left))
            return
        time.sleep(LOOK_SECONDS)
        left = relied_on(tree, broker, left)


def has_others(tree: Tree, broker: BrokerId) -> bool:
    return any(name != str(broker) for name in tree.children(layout.BROKER_IDS))
