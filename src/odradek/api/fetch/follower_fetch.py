"""What is particular to a follower's Fetch: the leader hears from it what the follower has (KIP-101, KIP-392, KIP-903).

    leader, epoch ──> a replica? ──> logs that part ──> range ──> taken in ──> read up to the log's end

The order is Apache Kafka's, but that the fetch is taken in before the read: so the answer has the high watermark that
it raises.  Each partition that is read is taken in once, when the request comes and not when it is woken.  What a
session has and nothing has happened to is where it was (Follower.stayed).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, Offset
from odradek.core.broker.broker import Broker
from odradek.core.fetch.fetch_sessions import Wanted
from odradek.core.kernel.moment import Moment
from odradek.core.partition.follower_states import NO_BROKER_EPOCH
from odradek.core.partition.partition import Partition
from odradek.wire.messages.fetch import FetchRequest

REPLICA_STATE_SINCE = 15


class FetchingFollower(NamedTuple):
    """The broker that fetches; -1 as `broker_epoch`, before v15 or as it says, is none."""

    broker: BrokerId
    broker_epoch: int


def follower_of(body: FetchRequest, version: int) -> FetchingFollower | None:
    """Returns who fetches as a follower; None for a consumer, which names a number below 0."""
    if version < REPLICA_STATE_SINCE:
        return None if body.replica_id < 0 else FetchingFollower(BrokerId(body.replica_id), NO_BROKER_EPOCH)
    state = body.replica_state
    return None if state.replica_id < 0 else FetchingFollower(BrokerId(state.replica_id), state.replica_epoch)


def take_in(broker: Broker, partition: Partition, follower: FetchingFollower, wanted: Wanted, now: Moment) -> None:
    """Takes in what a follower has, and wakes who waits for it; it is a replica whose log does not part from ours.

    Raises Refused if it is out of range, or of a process that has restarted since.
    """
    leading, log, offset = partition.leader(), partition.log, Offset(wanted.fetch_offset)
    if not log.start_offset <= offset <= log.end_offset:
        detail = f"{offset} is not in {log.start_offset}..{log.end_offset}"
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, detail)
    if leading.fetched(
        follower.broker,
        offset,
        Offset(wanted.log_start_offset),
        now,
        broker_epoch=follower.broker_epoch,
        leader_epoch=wanted.current_leader_epoch,
    ):
        broker.moved(leading.name, now)


def may_rest(partition: Partition, follower: FetchingFollower, wanted: Wanted) -> bool:
    """True if there is nothing to tell of a partition until it changes: its follower has all of it, and is in sync.

    One that is not in the ISR joins it by a fetch, so that all of its fetches are taken in.
    """
    leading = partition.leading
    if leading is None or leading.in_sync is None:
        return False
    return wanted.fetch_offset == partition.log.end_offset and leading.in_sync.is_in(follower.broker)
