"""What a follower may have to ask its leader, and what it is answered; api/ makes requests of it, of any version.

Each request also says the epoch in which the leader is followed, as current leader epoch, and the fetch the log start
offset here.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_OFFSET, LeaderEpoch, Offset


class Fetch(NamedTuple):
    """To be asked: records from `offset`, where the log ends.

    `last_fetched_epoch`, -1 if there is none, tells a leader since Kafka 2.7 where the logs diverge.
    """

    offset: Offset
    last_fetched_epoch: LeaderEpoch


class OffsetsForLeaderEpoch(NamedTuple):
    """To be asked: where the leader's log has the end of an epoch, the latest here.

    -1 if none is known here: a leader does not know it either.  One before Kafka 0.11 can't be asked; its answer is -1
    for both.

    One before Kafka 2.0 does not say which epoch it is that ends there.  So it is asked for the epoch before, too:
    `next_end` is what it said of the latest.
    """

    leader_epoch: LeaderEpoch
    next_end: Offset = NO_OFFSET


class LeaderOffsets(NamedTuple):
    """To be asked, by ListOffsets: the leader's log end offset first, then its log start offset.

    `offset`, where the log ends here, was out of its range.
    """

    offset: Offset


Ask: TypeAlias = Fetch | OffsetsForLeaderEpoch | LeaderOffsets


class EpochEnd(NamedTuple):
    """The greatest epoch of a log that is not above the one that was asked for, and where it ends.

    Both are -1 if it is not known; the epoch alone in an answer before Kafka 2.0, which lacks it.
    """

    leader_epoch: LeaderEpoch
    end_offset: Offset


class Fetched(NamedTuple):
    """One partition's part of an answer to a fetch; `diverging` if the logs diverge: then nothing else counts."""

    error: ErrorCode
    records: memoryview
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging: EpochEnd | None = None
