"""Requests of one follower to its leader, and its handling of the answers (KIP-101, KIP-279, KIP-595).

                         ┌──── truncated, until done ───────┐
                         v                                  │
    before Kafka 2.7 ──> OffsetsForLeaderEpoch ──> epoch_ended ──> Fetch
    since Kafka 2.7 ───> Fetch ──> fetched: appended, or truncated where the logs diverge ──> Fetch
                           └─ OFFSET_OUT_OF_RANGE ──> LeaderOffsets ──> leader_offsets: truncated or restarted,
                                                                        then as at first

`next` is the next request; its sender returns the answer together with the request, the object itself.  An answer to
anything else than `next` changes nothing.  So answers may be lost, duplicated or late, and a lost one is requested
again.  Nothing here waits: `delay_ms` is the time that the caller waits before the next request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, LeaderEpoch, Offset, TimestampMs
from odradek.core.partition.partition import Partition
from odradek.core.replication.follower_log import agreed_end, append_fetched, truncate_fully_and_start_at, truncate_log
from odradek.core.replication.leader_endpoint import (
    EpochEnd,
    Fetch,
    Fetched,
    LeaderOffsets,
    LeaderRequest,
    OffsetsForLeaderEpoch,
)
from odradek.log.files.disk import DiskFailed

_LOG = logging.getLogger(__name__)

# The leader or this broker has not learned of an election yet, which needs no log line.
ELECTION_UNDER_WAY = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
# Errors of a leader that does not know the topic yet: the controller sends UpdateMetadata after LeaderAndIsr.
TOPIC_IS_NEW = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
# A broker that does not know a topic or an election usually learns of it in a moment, and acks=all producers wait for
# it.
SOON_MS, SOON_TRIES = 50, 20


class Following:
    """One partition that follows one leader in one leader epoch, until any of these changes.

    `epoch` and `log_start_offset` go into each request as current leader epoch and log start offset.
    """

    def __init__(
        self,
        partition: Partition,
        leader: BrokerId,
        epoch: LeaderEpoch,
        backoff_ms: int,
        *,
        diverging_in_fetch: bool,
    ) -> None:
        """Start to follow.

        `backoff_ms` is replica.fetch.backoff.ms; `diverging_in_fetch` means that the leader supports Fetch 12 (Kafka
        2.7).
        """
        assert partition.leading is None, "a leader does not follow"
        self.partition = partition
        self.leader = leader
        self.epoch = epoch
        self.delay_ms = 0  # The wait before `next` is sent.
        self.lag: int | None = None  # Records behind the leader's high watermark, once fetched.
        self._backoff_ms = backoff_ms
        self._diverging_in_fetch = diverging_in_fetch
        self._is_fenced = False
        self._tries_left = SOON_TRIES  # Short waits left before the backoff applies and an unknown topic is logged.
        self._logged_reason = ""  # The last logged reason, so that it is not logged with each attempt.
        self._next: LeaderRequest = self._first_request()

    @property
    def is_over(self) -> bool:
        """Return whether no more requests are due: role, leader or epoch changed, log offline, or fenced.

        A leader fences a follower that missed a newer epoch; the controller's next LeaderAndIsr contains that epoch.
        """
        partition = self.partition
        info = partition.info
        is_current = info.leader == self.leader and info.leader_epoch == self.epoch
        return self._is_fenced or not is_current or partition.leading is not None or not partition.is_online

    @property
    def next(self) -> LeaderRequest | None:
        """The next request to the leader, to be sent after `delay_ms`; None if it is over."""
        return None if self.is_over else self._next

    @property
    def log_start_offset(self) -> Offset:
        """The log start offset here; retention may advance it at any time."""
        return self.partition.log.start_offset

    # Answers.

    def fetched(self, request: Fetch, answer: Fetched, now: TimestampMs) -> bool:
        """Apply the answer to a Fetch; return whether the high watermark has advanced."""
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE and self._is_awaited(request):
            self._set_next(LeaderOffsets(self.partition.log.end_offset))
            return False
        if not self._accept(request, answer.error):
            return False
        try:
            if answer.diverging is None:
                return self._replicate(answer, now)
            if not self._truncate(answer.diverging, now):
                self._try_later(f"the leader reports a diverging epoch that requires no truncation: {answer.diverging}")
        except (DiskFailed, Refused) as error:
            self._on_failed(error)
        return False

    def epoch_ended(self, request: OffsetsForLeaderEpoch, error: ErrorCode, answer: EpochEnd, now: TimestampMs) -> None:
        """Apply the answer to an OffsetsForLeaderEpoch."""
        if self._accept(request, error):
            self._do(lambda: self._compare(request, answer, now))

    def leader_offsets(
        self, request: LeaderOffsets, error: ErrorCode, start: Offset, end: Offset, now: TimestampMs
    ) -> None:
        """Apply the answer to a LeaderOffsets: the start and the end of the leader's log."""
        if self._accept(request, error):
            self._do(lambda: self._move_into_range(start, end, now))

    def _accept(self, request: LeaderRequest, error: ErrorCode) -> bool:
        """Return whether this is the awaited answer, without an error; handle the error otherwise."""
        if not self._is_awaited(request):
            return False
        if error is not ErrorCode.NONE:
            self._refused(error)
        return error is ErrorCode.NONE

    def _is_awaited(self, request: LeaderRequest) -> bool:
        return request is self._next and not self.is_over

    def _do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (DiskFailed, Refused) as error:
            self._on_failed(error)

    def _on_failed(self, error: DiskFailed | Refused) -> None:
        if isinstance(error, DiskFailed):
            self._disk_failed(error)
        elif self.partition.is_online:  # Otherwise a fetch that was notified has found its disk failed.
            raise error

    # Reactions to answers.

    def _replicate(self, answer: Fetched, now: TimestampMs) -> bool:
        partition = self.partition
        try:
            append_fetched(partition, answer.records, answer.log_start_offset, now)
        except Refused as refused:  # Damaged in transit or on the leader: Kafka's follower also fetches it again.
            self._try_later(str(refused))
            return False
        log, positions = partition.log, partition.positions
        self.lag = max(0, answer.high_watermark - log.end_offset)
        # A new leader may not know yet what was committed before; that never lowers a high watermark.
        has_risen = partition.advance_high_watermark(min(answer.high_watermark, log.end_offset))
        partition.advance_start(min(answer.log_start_offset, positions.high_watermark))
        assert positions.are_within(log.start_offset, log.end_offset), (
            "the high watermark of a follower is within its log"
        )
        self._logged_reason = ""
        self._set_next(self._fetch())
        return has_risen

    def _compare(self, request: OffsetsForLeaderEpoch, answer: EpochEnd, now: TimestampMs) -> None:
        """Truncate the log at the point in the leader's answer, or in two answers before Kafka 2.0.

        If two epochs end at the same offset, the later one has no records and is not a common epoch (KIP-279).
        """
        if request.next_end < 0 and request.leader_epoch > 0 and answer.leader_epoch < 0 <= answer.end_offset:
            self._set_next(OffsetsForLeaderEpoch(LeaderEpoch(request.leader_epoch - 1), answer.end_offset))
        elif request.next_end < 0:
            self._truncate(answer, now)
        elif answer.end_offset != request.next_end:
            self._truncate(EpochEnd(LeaderEpoch(request.leader_epoch + 1), request.next_end), now)
        else:
            # Compaction may hide a divergence: once it has removed all first batches of an epoch, no epoch shows that
            # the follower has other records in that gap.  Apache Kafka has the same limitation.
            log = self.partition.log
            _, end = log.epochs.end_offset_for(request.leader_epoch, log.end_offset)
            truncate_log(self.partition, max(end, log.start_offset), now)
            self._set_next(self._first_request())

    def _truncate(self, answer: EpochEnd, now: TimestampMs) -> bool:
        """Truncate the log at the point in the leader's answer; return False if there was nothing to truncate.

        If that was not enough, a leader since Kafka 2.7 reports that in the next fetch; any other is queried again.
        """
        partition = self.partition
        offset, is_done = agreed_end(partition.log, partition.positions.high_watermark, answer)
        assert offset <= partition.log.end_offset, "logs agree at most up to their ends"
        has_changed = truncate_log(partition, offset, now)
        self._set_next(self._fetch() if is_done else self._first_request())
        return has_changed

    def _move_into_range(self, start: Offset, end: Offset, now: TimestampMs) -> None:
        """Move the log end offset into the leader's range.

        Kafka's follower continues to fetch after that, and may keep records that its leader lacks.  This one compares
        epochs again.
        """
        partition = self.partition
        own_end = partition.log.end_offset
        if not 0 <= start <= end:
            self._try_later(f"the leader returned an invalid offset range from {start} to {end}")
            return
        if end < own_end:
            truncate_log(partition, end, now)
        elif start > own_end:
            _LOG.warning(
                "truncating %s fully and starting at offset %d, the log start offset of the leader",
                partition.topic_partition,
                start,
            )
            truncate_fully_and_start_at(partition, start, now)
        self._set_next(self._first_request())
        if partition.log.end_offset == own_end:
            self._try_later(f"fetch offset {own_end} is out of range, the leader has offsets {start} to {end}")

    # Next requests.

    def _first_request(self) -> LeaderRequest:
        """Return the first request, which finds the point where the logs diverge.

        Records above the high watermark without any epoch cannot be compared.  The request then names epoch -1, which
        the leader does not know either.
        """
        log = self.partition.log
        latest = log.epochs.latest
        has_none = latest < 0 and log.end_offset > self.partition.positions.high_watermark
        if has_none or (latest >= 0 and not self._diverging_in_fetch):
            return OffsetsForLeaderEpoch(latest)
        return self._fetch()

    def _fetch(self) -> Fetch:
        log = self.partition.log
        return Fetch(log.end_offset, log.epochs.latest)

    def _set_next(self, request: LeaderRequest) -> None:
        self._next = request
        self.delay_ms = 0

    # Errors.

    def _refused(self, error: ErrorCode) -> None:
        """Handle an error of the leader: retry the request later, unless the leader fenced this follower."""
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._is_fenced = True
            return
        if self._tries_left and (error in TOPIC_IS_NEW or error in ELECTION_UNDER_WAY):
            self._tries_left -= 1
            self.delay_ms = min(SOON_MS, self._backoff_ms)
        elif error in ELECTION_UNDER_WAY:
            self.delay_ms = self._backoff_ms
        else:
            self._try_later(f"leader {self.leader} in leader epoch {self.epoch} returned {error.name}")

    def _try_later(self, why: str) -> None:
        """Set a delay before the next request; log the reason if it has changed."""
        self.delay_ms = self._backoff_ms
        if why != self._logged_reason:
            _LOG.warning("failed to replicate %s: %s", self.partition.topic_partition, why)
        self._logged_reason = why

    def _disk_failed(self, failed: DiskFailed) -> None:
        """Handle a failed disk: the partition goes offline, or on a full disk retries later."""
        self.partition.disk_failed(failed)
        if not self.is_over and isinstance(self._next, Fetch):
            self._set_next(self._fetch())  # The first of several batches may have been appended.
        self.delay_ms = self._backoff_ms
