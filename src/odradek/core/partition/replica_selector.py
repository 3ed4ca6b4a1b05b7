"""Choice of the replica that a consumer reads from (KIP-392).

    Fetch with a rack ──> the leader ──> its preferred read replica, and no records ──> a Fetch to that replica

This is Kafka's ReplicaSelector with ReplicaManager.findPreferredReadReplica.  The leader itself serves a consumer in
its own rack, or in a rack without a replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.base.units import BrokerId
from odradek.core.kernel.cluster_view import ClusterView

if TYPE_CHECKING:
    from odradek.core.partition.leadership_state import Leadership  # Deferred for a faster start.

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTORS = (LEADER_SELECTOR, RACK_AWARE_SELECTOR)


def preferred_read_replica(
    leading: Leadership, view: ClusterView, listener: str, rack: str, offset: int
) -> BrokerId | None:
    """Return the replica in a rack to read from `offset`; None if that is the leader.

    The replica is in sync, alive, reachable at the client's listener, and its log contains the offset, as far as the
    leader knows.  Among several, the one with the highest log end offset is chosen, then the one caught up last.
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
