"""Fetch requests of followers, which show the leader each follower's log (KIP-101, KIP-392, KIP-903).

    leader, epoch ──> a replica? ──> diverging logs ──> range ──> position recorded ──> read up to the log's end

The order is Apache Kafka's, except that the position is recorded before the read: the response then has the high
watermark that the fetch itself advances. The position of each partition is recorded once, when the request arrives, and
not when it is woken. For a session's partition without any change, the follower's position stays the same
(Follower.stayed).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, Offset
from odradek.core.broker.broker import Broker
from odradek.core.fetch.fetch_sessions import CachedPartition
from odradek.core.kernel.moment import Moment
from odradek.core.partition.follower_states import NO_BROKER_EPOCH
from odradek.core.partition.partition import Partition
from odradek.wire.messages.fetch import FetchRequest

REPLICA_STATE_SINCE = 15


class FetchingFollower(NamedTuple):
    """The broker that fetches; `broker_epoch` is -1 before v15 or if the broker sends none."""

    broker: BrokerId
    broker_epoch: int


def follower_of(body: FetchRequest, version: int) -> FetchingFollower | None:
    """Return the follower that fetches; None for a consumer, which sends a negative replica id."""
    if version < REPLICA_STATE_SINCE:
        return None if body.replica_id < 0 else FetchingFollower(BrokerId(body.replica_id), NO_BROKER_EPOCH)
    state = body.replica_state
    return None if state.replica_id < 0 else FetchingFollower(BrokerId(state.replica_id), state.replica_epoch)


def record_position(
    broker: Broker, partition: Partition, follower: FetchingFollower, cached_partition: CachedPartition, now: Moment
) -> None:
    """Record a follower's position and wake the requests that wait for it.

    The follower is a replica whose log does not diverge from ours. Raise Refused if the position is out of range, or
    comes from a process that has restarted since.
    """
    leading, log, offset = partition.leader(), partition.log, Offset(cached_partition.fetch_offset)
    if not log.start_offset <= offset <= log.end_offset:
        detail = f"fetch offset {offset} is out of range: {log.start_offset} to {log.end_offset}"
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, detail)
    if leading.fetched(
        follower.broker,
        offset,
        Offset(cached_partition.log_start_offset),
        now,
        broker_epoch=follower.broker_epoch,
        leader_epoch=cached_partition.current_leader_epoch,
    ):
        broker.moved(leading.name, now)


def is_caught_up(partition: Partition, follower: FetchingFollower, cached_partition: CachedPartition) -> bool:
    """Return whether a follower has all of a partition and is in sync, so that only a change matters.

    A follower outside the ISR joins it by a fetch, so all of its fetches are recorded.
    """
    leading = partition.leading
    if leading is None or leading.in_sync is None:
        return False
    return cached_partition.fetch_offset == partition.log.end_offset and leading.in_sync.is_in(follower.broker)
