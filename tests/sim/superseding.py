"""The records that compaction may have removed, and the earliest time for each.

A record may be missing once a pass of the cleaner has gone beyond a later record of its key that may be committed by
then and is older than min.compaction.lag.ms; a tombstone also once it is older than delete.retention.ms. At the end, a
record may be missing only if a later one of its key is present, or was a tombstone that may be missing itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from odradek.base.units import TopicPartition
from sim.history import Compaction, History, Seen, Sent, Value
from sim.simclock import MILLISECOND_US
from sim.simkeys import is_tombstone, key_of

NEVER_US = 1 << 62
NOWHERE, ANYWHERE = -1, 1 << 62
KeyOfPartition = tuple[TopicPartition, str]


class Version(NamedTuple):
    """One of the records of a key. Its offset, before or after a power failure, is between `low` and `high`."""

    value: Value
    low: int
    high: int
    supersedes_us: int  # Time from which earlier records may be removed because of it.
    expires_us: int  # Time from which it may be removed itself, as a tombstone.


class Superseding:
    """The removable records by value; topics without compaction have none."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._survivors: dict[KeyOfPartition, int] = {}
        self._versions: dict[KeyOfPartition, list[Version]] = defaultdict(list)
        self._version_of: dict[Value, Version] = {}
        self._since_us: dict[Value, int] = {}
        if history.compaction is None:
            return
        for seen in _all(history.committed):
            self._survivors[seen.partition, key_of(seen.value)] = seen.offset
        places = _places(history)
        for sent in history.sent.values():
            version = self._version(sent, places.get(sent.value, ()), history.compaction)
            self._version_of[sent.value] = version
            self._versions[sent.partition, key_of(sent.value)].append(version)
        for (partition, _), versions in self._versions.items():
            for one, superseded_us in zip(versions, _superseded(versions), strict=True):
                since_us = max(min(superseded_us, one.expires_us), self._passed_us(partition, one.low))
                self._since_us[one.value] = since_us

    def since_us(self) -> Mapping[Value, int]:
        """Return the times from which read-committed consumers need not see a value; NEVER_US for most."""
        return self._since_us

    def may_be_removed(self, value: Value) -> bool:
        """Return True if the value may be missing at the end, given the present ones, or if its commit is unknown."""
        sent = self._history.sent.get(value)
        if sent is None or self._history.compaction is None:
            return False
        key, mine = (sent.partition, key_of(value)), self._version_of[value]
        if sent.transaction is not None and not sent.transaction.is_committed:
            return self._passed_us(sent.partition, mine.low) < NEVER_US
        if self._since_us[value] == NEVER_US:
            return False
        now_us = self._history.now_us()
        later = (one for one in self._versions[key] if one is mine or one.high > mine.low)
        return self._survivors.get(key, NOWHERE) > mine.low or any(one.expires_us <= now_us for one in later)

    def _version(self, sent: Sent, places: Sequence[int], compaction: Compaction) -> Version:
        """Return the version of a sent record; changes of a wall clock may shorten waiting times by their sum."""
        low, high = (min(places), max(places)) if places else (NOWHERE, ANYWHERE)
        history, visible_us = self._history, _visible_us(sent)
        if visible_us == NEVER_US:
            return Version(sent.value, low, high, NEVER_US, NEVER_US)
        skew_ms = max(history.walls_ahead_ms) - min(history.walls_ahead_ms)
        lag_us = max(compaction.min_lag_ms - skew_ms, 0) * MILLISECOND_US
        retention_us = max(compaction.delete_retention_ms - skew_ms, 0) * MILLISECOND_US
        passed_us = self._passed_us(sent.partition, low)
        expires_us = max(passed_us, sent.invoked_us + retention_us) if is_tombstone(sent.value) else NEVER_US
        # The age of the record counts, not that of the commit.
        supersedes_us = max(passed_us, visible_us, sent.invoked_us + lag_us)
        return Version(sent.value, low, high, supersedes_us, expires_us)

    def _passed_us(self, partition: TopicPartition, offset: int) -> int:
        """Return the time at which a pass first went beyond an offset."""
        passes = self._history.passes.get(partition, ())
        return next((one.time_us for one in passes if one.end > offset), NEVER_US)


def _superseded(versions: Sequence[Version]) -> Iterator[int]:
    """Yield for each version the earliest time at which a possibly later version supersedes it."""
    by_place = sorted(versions, key=attrgetter("high"))
    highs = [one.high for one in by_place]
    earliest = list(accumulate((one.supersedes_us for one in reversed(by_place)), min, initial=NEVER_US))[::-1]
    for one in versions:
        if one.low == one.high:
            yield earliest[bisect_right(highs, one.low)]
        else:
            others = (other for other in versions if other is not one and other.high > one.low)
            yield min((other.supersedes_us for other in others), default=NEVER_US)


def _visible_us(sent: Sent) -> int:
    """Return the earliest time at which a record may be in the log and committed."""
    transaction = sent.transaction
    if transaction is None:
        return sent.invoked_us
    requested_us = transaction.commit_requested_us
    return NEVER_US if requested_us is None or transaction.is_committed is False else requested_us


def _places(history: History) -> Mapping[Value, Sequence[int]]:
    """Return the offsets at which each value was acknowledged or seen."""
    found: dict[Value, set[int]] = defaultdict(set)
    for sent in history.sent.values():
        if sent.offset is not None:
            found[sent.value].add(sent.offset)
    read = (seen for transaction in history.transactions for seen in transaction.read)
    for group in (history.seen, read, _all(history.final), _all(history.committed)):
        for seen in group:
            found[seen.value].add(seen.offset)
    return {value: sorted(places) for value, places in found.items()}


def _all(records: Mapping[TopicPartition, Iterable[Seen]]) -> Iterator[Seen]:
    return (seen for of_one in records.values() for seen in of_one)
