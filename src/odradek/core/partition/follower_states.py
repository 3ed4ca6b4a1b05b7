"""One follower as its leader knows it, which is from its fetches alone (Kafka's ReplicaState).

A follower is caught up while its log ends where the leader's does.  Under a steady load its fetches never reach the
leader's end, so it also counts as caught up at the time of a fetch whose successor begins where the leader ended then.
Times are of a steady clock, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import DAY_MS, NO_OFFSET, BrokerId, Offset

# The brokers that may join an ISR (KIP-841): those that live and don't shut down, with their broker epochs, -1 where
# that is not known.
Eligible = Mapping[BrokerId, int]

NO_BROKER_EPOCH = -1  # Before Kafka 3.5 followers do not say it (KIP-903).
NEVER_MS = -1_000_000 * DAY_MS  # A steady clock may begin at 0, so that 0 would be a moment ago.


class Follower:
    """The last fetch of one follower, and when it was caught up last.

    `log_end_offset` and `log_start_offset` are unknown (-1) until it has fetched from this leader; -1 as
    `broker_epoch` says that it has not fetched, or does not tell its epoch.
    """

    def __init__(self, broker: BrokerId, now: int, *, is_in_sync: bool) -> None:
        self.broker = broker
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.last_caught_up_ms = now if is_in_sync else NEVER_MS
        self._last_fetch_ms = NEVER_MS
        self._last_fetch_leader_end = NO_OFFSET
        self._looked_at = NO_OFFSET  # Its log end offset at the last call of is_stuck.
        self._looks = 0  # So often it was there.

    def fetched(self, offset: Offset, log_start: Offset, leader_end: Offset, now: int, broker_epoch: int) -> None:
        """Takes in a fetch: the follower has all records from `log_start` up to `offset`, and none behind."""
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
        """Takes in that it fetched at a time what it had fetched before, when the leader's log ended where it did then.

        Fetches of a session do not name what has not moved: else a partition that nobody writes to would have been
        caught up for the last time when somebody did.
        """
        if self._last_fetch_ms > NEVER_MS and self.log_end_offset >= self._last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, at)

    def is_stuck(self, leader_end: Offset) -> bool:
        """Return whether the log ends where it did at the last call, short of the leader's; once for each offset."""
        offset = self.log_end_offset
        self._looks = self._looks + 1 if offset == self._looked_at else 0
        self._looked_at = offset
        return self._looks == 1 and 0 <= offset < leader_end

    def check_broker_epoch(self, broker_epoch: int, eligible: Eligible, now: int, lag_ms_max: int) -> None:
        """Raise Refused for a fetch of the process that the broker was before it restarted (KIP-903).

        An epoch that a fetch claimed, and that was not fetched in for replica.lag.time.max.ms, is no process's: one
        fetch with an absurd epoch would keep the follower out for good.
        """
        claimed = self.broker_epoch if now - self._last_fetch_ms <= lag_ms_max else NO_BROKER_EPOCH
        latest = max(claimed, eligible.get(self.broker, NO_BROKER_EPOCH))
        if NO_BROKER_EPOCH != broker_epoch < latest:
            text = f"broker {self.broker} fetched with broker epoch {broker_epoch}, now {latest}"
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def leader_epoch_began(self, leader_end: Offset, now: int, *, is_in_sync: bool) -> None:
        """Takes in that the same leader goes on in a new epoch: what the follower has stays known, its times do not."""
        self.last_caught_up_ms = self._last_fetch_ms = now if is_in_sync else NEVER_MS
        self._last_fetch_leader_end = leader_end

    def is_caught_up(self, leader_end: Offset, now: int, lag_ms_max: int) -> bool:
        """True if the follower has all that the leader has, or had so at most replica.lag.time.max.ms ago."""
        return self.log_end_offset == leader_end or now - self.last_caught_up_ms <= lag_ms_max

    def is_eligible(self, eligible: Eligible) -> bool:
        """True if it may join an ISR, and is the process that fetched last, as far as both epochs are known."""
        epoch = eligible.get(self.broker)
        return epoch is not None and (epoch == self.broker_epoch or NO_BROKER_EPOCH in (epoch, self.broker_epoch))
