"""State of one follower as its leader derives it from fetches alone (Kafka's ReplicaState).

A follower is caught up while its log end offset equals the leader's.  Under a steady load its fetches never reach the
leader's end.  It therefore also counts as caught up at the time of a fetch if its next fetch starts at or above the
leader's end at that time.  Times are in milliseconds on a steady clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import DAY_MS, NO_OFFSET, BrokerId, Offset

# Brokers that may join an ISR (KIP-841): live and not shutting down, with their broker epochs, -1 if unknown.
Eligible = Mapping[BrokerId, int]

NO_BROKER_EPOCH = -1  # Followers before Kafka 3.5 do not send it (KIP-903).
NEVER_MS = -1_000_000 * DAY_MS  # A steady clock may start at 0, so 0 would mean a moment ago.


class Follower:
    """Last fetch of one follower, and the last time it was caught up.

    `log_end_offset` and `log_start_offset` are -1 until the follower has fetched from this leader.  `broker_epoch` is
    -1 until it has fetched, or if it does not send its epoch.
    """

    def __init__(self, broker: BrokerId, now: int, *, is_in_sync: bool) -> None:
        self.broker = broker
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.last_caught_up_ms = now if is_in_sync else NEVER_MS
        self._last_fetch_ms = NEVER_MS
        self._last_fetch_leader_end = NO_OFFSET
        self._last_checked_end = NO_OFFSET  # Its log end offset at the last call of is_stuck.
        self._checks_at_end = 0  # So often it was there.

    def fetched(self, offset: Offset, log_start: Offset, leader_end: Offset, now: int, broker_epoch: int) -> None:
        """Record a fetch: the follower has all records from `log_start` up to `offset`, and no others."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now)
        elif offset >= self._last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start
        self.broker_epoch = broker_epoch
        self._last_fetch_ms = now
        self._last_fetch_leader_end = max(self._last_fetch_leader_end, leader_end)

    def stayed(self, at: int) -> None:
        """Record that the follower repeated its last fetch while the leader's log end offset was unchanged.

        Fetches of a session omit partitions that have not changed.  Without this call, a partition without writes would
        seem caught up for the last time at its last write.
        """
        if self._last_fetch_ms > NEVER_MS and self.log_end_offset >= self._last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, at)

    def is_stuck(self, leader_end: Offset) -> bool:
        """Return whether the log ends where it did at the last call, short of the leader's; once for each offset."""
        offset = self.log_end_offset
        self._checks_at_end = self._checks_at_end + 1 if offset == self._last_checked_end else 0
        self._last_checked_end = offset
        return self._checks_at_end == 1 and 0 <= offset < leader_end

    def check_broker_epoch(self, broker_epoch: int, eligible: Eligible, now: int, lag_ms_max: int) -> None:
        """Raise Refused for a fetch by an earlier process of the same broker (KIP-903).

        A claimed epoch expires if no fetch has used it for replica.lag.time.max.ms: it belongs to no running process.
        Otherwise a single fetch with an absurd epoch would keep the follower out of the ISR for good.
        """
        claimed = self.broker_epoch if now - self._last_fetch_ms <= lag_ms_max else NO_BROKER_EPOCH
        latest = max(claimed, eligible.get(self.broker, NO_BROKER_EPOCH))
        if NO_BROKER_EPOCH != broker_epoch < latest:
            text = f"broker {self.broker} fetched with stale broker epoch {broker_epoch}: the latest is {latest}"
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def leader_epoch_began(self, leader_end: Offset, now: int, *, is_in_sync: bool) -> None:
        """Restart the times for a new epoch of the same leader.

        The offsets of the follower stay valid.
        """
        self.last_caught_up_ms = self._last_fetch_ms = now if is_in_sync else NEVER_MS
        self._last_fetch_leader_end = leader_end

    def is_caught_up(self, leader_end: Offset, now: int, lag_ms_max: int) -> bool:
        """Return whether the follower has all of the leader's log, or did at most replica.lag.time.max.ms ago."""
        return self.log_end_offset == leader_end or now - self.last_caught_up_ms <= lag_ms_max

    def is_eligible(self, eligible: Eligible) -> bool:
        """Return whether the follower may join an ISR.

        It must be the process that fetched last, as far as both epochs are known.
        """
        epoch = eligible.get(self.broker)
        return epoch is not None and (epoch == self.broker_epoch or NO_BROKER_EPOCH in (epoch, self.broker_epoch))
