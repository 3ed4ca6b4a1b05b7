"""Requests of a follower to its leader, and their answers; api/ encodes them in any version.

Each request also contains the epoch in which the leader is followed, as current leader epoch.  A fetch also contains
this log's start offset.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_OFFSET, LeaderEpoch, Offset


class Fetch(NamedTuple):
    """Request for records from `offset`, the log end offset.

    `last_fetched_epoch`, -1 if there is none, lets a leader since Kafka 2.7 find the point where the logs diverge.
    """

    offset: Offset
    last_fetched_epoch: LeaderEpoch


class OffsetsForLeaderEpoch(NamedTuple):
    """Request for the end of an epoch in the leader's log, the latest epoch here.

    It is -1 if none is known here, which a leader does not know either.  A leader before Kafka 0.11 does not support
    the request; its answer is -1 for both.

    A leader before Kafka 2.0 does not return the epoch that ends there.  A second request therefore names the epoch
    before: `next_end` is the answer for the latest.
    """

    leader_epoch: LeaderEpoch
    next_end: Offset = NO_OFFSET


class LeaderOffsets(NamedTuple):
    """Request, by ListOffsets, for the leader's log end offset first, then its log start offset.

    `offset`, the log end offset here, was out of its range.
    """

    offset: Offset


LeaderRequest: TypeAlias = Fetch | OffsetsForLeaderEpoch | LeaderOffsets


class EpochEnd(NamedTuple):
    """Greatest epoch of a log up to the requested one, and its end.

    Both are -1 if unknown; in answers before Kafka 2.0, which lack the epoch, only the epoch is -1.
    """

    leader_epoch: LeaderEpoch
    end_offset: Offset


class Fetched(NamedTuple):
    """One partition's part of a fetch answer; with `diverging`, other fields are void."""

    error: ErrorCode
    records: memoryview
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging: EpochEnd | None = None
