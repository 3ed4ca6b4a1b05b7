"""Which replica a consumer reads from (KIP-392): Kafka's ReplicaSelector, and ReplicaManager.findPreferredReadReplica.

    Fetch with a rack ──> the leader ──> its preferred read replica, and no records ──> the consumer asks that one

A leader in the consumer's own rack answers by itself, and so does one that has nobody there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.base.units import BrokerId
from odradek.core.kernel.cluster_view import ClusterView

if TYPE_CHECKING:
    from odradek.core.partition.leadership_state import Leadership  # Who only looks at a configuration saves its time.

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTORS = (LEADER_SELECTOR, RACK_AWARE_SELECTOR)


def preferred_read_replica(
    leading: Leadership, view: ClusterView, listener: str, rack: str, offset: int
) -> BrokerId | None:
    """Returns the replica in a rack that is to be read from `offset`; None if that is the leader.

    It is in sync, alive, can be reached at the client's listener, and its log has the offset, as far as the leader has
    heard; of several it is the one that has most, then the one that was caught up last.
    """
    in_sync, brokers = leading.in_sync, view.brokers
    if in_sync is None:
        return None
    own = brokers.get(in_sync.broker)
    if own is not None and own.rack == rack:
        return None
    found: list[tuple[int, int, BrokerId]] = []
    for broker in in_sync.committed.isr:
        info = brokers.get(broker)
        if broker == in_sync.broker or info is None or info.rack != rack or info.endpoint(listener) is None:
            continue
        known = in_sync.replica(broker)
        if max(known.log_start_offset, 0) <= offset <= known.log_end_offset:
            found.append((known.log_end_offset, known.last_caught_up_ms, broker))
    return max(found)[2] if found else None
