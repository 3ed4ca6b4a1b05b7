"""Invariants that hold between any two steps of a broker: `check(thing)` raises AssertionError if one is broken.

The asserts in `src` only compare a few numbers each, as they run with every request. Checks of the whole state are
here, and property tests call them after each step.
"""

from __future__ import annotations

from collections import Counter
from functools import singledispatch
from itertools import pairwise

from odradek.core.broker.broker import Broker
from odradek.core.coordinators.shards import Shards
from odradek.core.fetch.fetch_sessions import FetchSession, FetchSessions
from odradek.core.groups.shard.offsets import GroupOffsets
from odradek.core.kernel.purgatory import BUCKET_MS, Purgatory
from odradek.core.partition.partition import Partition
from odradek.log.log.log import SEALED_OPEN_MAX, Log
from odradek.log.producers.producer_state import BATCHES_KEPT, NOTHING_UNSTABLE, ProducerStateManager
from odradek.log.segment.index import Index
from odradek.log.segment.segment import Segment


@singledispatch
def check(thing: object) -> None:
    raise TypeError(f"nobody has said what holds for a {type(thing).__name__}")


@check.register
def check_broker(broker: Broker) -> None:
    for partition in broker.partitions.values():
        check(partition)
    check(broker.sessions)
    check(broker.purgatory)
    for shards in broker.coordinators.shards.values():
        check(shards)
    for group_shard in broker.groups.shards:
        check(group_shard.offsets)


# Logs.


@check.register
def check_log(log: Log) -> None:
    segments = log.segments
    assert segments[0].base_offset <= log.start_offset <= log.end_offset
    assert segments[-1].base_offset <= log.end_offset
    assert segments[-1] is log.active
    assert log.recovery_point <= log.end_offset
    assert all(one.base_offset < following.base_offset for one, following in pairwise(segments))
    assert all(one.size for one in segments[1:-1]), "an empty segment amid a log hides records"
    assert not (log._is_prepared and log.pending_work), "what is owed comes before the next append"
    assert len(log.sealed_open) <= SEALED_OPEN_MAX
    for some in (log.sealed_open, log.durability.unsynced):
        assert len(set(some)) == len(some)
        assert set(some) <= set(segments[:-1]), "of the log's sealed segments"
    for flush in log.durability.under_way:
        assert flush.end_offset <= log.end_offset
        assert flush.changes <= log.durability.changes
    epochs = log.epochs.entries
    assert all(one[0] < following[0] and one[1] < following[1] for one, following in pairwise(epochs))
    assert all(start <= log.end_offset for _, start in epochs)
    for segment in segments:
        check(segment)
    check(log.producers)
    assert all(one.first_offset < log.end_offset for one in log.producers)


@check.register
def check_segment(segment: Segment) -> None:
    ends, positions = segment._recent_ends, segment._recent_positions
    assert len(ends) == len(positions)
    assert all(one < following for some in (ends, positions) for one, following in pairwise(some))
    assert all(segment.base_offset <= end for end in ends)
    assert all(0 <= position < segment.size for position in positions)
    assert all(0 <= position <= segment.size for position in segment._hints.values())
    for index in (segment.offsets, segment.times):
        check(index)
    assert all(segment.offsets.entry(number)[1] < segment.size for number in range(len(segment.offsets)))


@check.register
def check_index(index: Index) -> None:
    entries = [index.entry(number) for number in range(len(index))]
    assert all(one[0] < following[0] and one[1] < following[1] for one, following in pairwise(entries))


@check.register
def check_producers(producers: ProducerStateManager) -> None:
    first_offsets = {one.id: one.first_offset for one in producers if one.has_open_transaction}
    assert producers._open == first_offsets
    unstable = [*first_offsets.values(), *(ended.first_offset for ended in producers._ended)]
    assert producers.first_unstable == min(unstable, default=NOTHING_UNSTABLE)
    for one in producers:
        assert producers.get(one.id) is one
        assert len(one.batches) <= BATCHES_KEPT
        assert all(before[1] < after[1] - after[2] for before, after in pairwise(one.batches)), "one after the other"


# Partitions, and the requests that wait for them.


@check.register
def check_partition(partition: Partition) -> None:
    for watchers in (partition.watchers, partition.end_watchers):
        for cached in watchers:
            assert cached._watched is watchers, "who watches it watches nothing else"
            assert cached.session is not None, "who was forgotten would be told for ever"
            assert (cached.session.follower >= 0) == (watchers is partition.end_watchers), "each is told what it reads"
    leading = partition.leading
    if leading is not None:
        assert partition.is_online, "who leads has the log"
        assert leading.partition is partition
        assert leading.ended is None
        assert leading.positions is partition.positions
        assert leading.epoch == partition.info.leader_epoch
    if partition.is_online:
        log, positions = partition.log, partition.positions
        check(log)
        assert positions.are_within(log.start_offset, log.end_offset)
        assert positions.durable_end <= log.recovery_point
        assert log.start_offset <= partition.last_stable_offset <= positions.high_watermark
        assert not any(one.last_offset < positions.high_watermark for one in log.producers._ended)


@check.register
def check_sessions(sessions: FetchSessions) -> None:
    assert sessions._partitions == sum(len(one.partitions) for one in sessions._sessions.values())
    for session_id, session in sessions._sessions.items():
        assert session.id == session_id
        check(session)


@check.register
def check_session(session: FetchSession) -> None:
    """Check a live session; it may have no partition, if its client created it without any."""
    assert session.due.keys() <= set(session.partitions.values())
    for key, cached in session.partitions.items():
        assert cached.key == key
        assert cached.session is session
        assert cached in session.due or cached._watched is not None, "nobody would ever read it"
        assert cached._watched is None or cached in cached._watched, "its partition would never tell it"


@check.register
def check_lot(purgatory: Purgatory) -> None:
    assert Counter(purgatory._buckets) == Counter(purgatory._by_bucket.keys()), "the heap names each bucket once"
    parked = {one: bucket for bucket, some in purgatory._by_bucket.items() for one in some}
    assert len(parked) == len(purgatory)
    for one, bucket in parked.items():
        assert one.deadline <= bucket * BUCKET_MS < one.deadline + BUCKET_MS
        assert all(one in purgatory._by_key[key] for key in one.condition.keys)
    for key, some in purgatory._by_key.items():
        assert some, "a key that nobody waits for is forgotten"
        assert all(one in parked and key in one.condition.keys for one in some)


# Coordinators.


@check.register
def check_shards(shards: Shards) -> None:  # type: ignore[type-arg]
    assert not shards._loading.keys() & shards._shards.keys(), "a shard is loading or serving, never both"
    assert shards._awaiting_descriptor <= shards._loading.keys()
    assert shards._loading.keys() | shards._shards.keys() <= shards._led.keys()
    assert all(leading.name.partition == index for index, leading in shards._led.items())


@check.register
def check_offsets(offsets: GroupOffsets) -> None:
    open_by_group: dict[str, set[int]] = {}
    for producer_id, pending in offsets._pending.items():
        assert pending, "who has nothing pending is forgotten"
        for group, _, _ in pending:
            open_by_group.setdefault(group, set()).add(producer_id)
    assert {group: set(producers) for group, producers in offsets._open.items()} == open_by_group
    assert all(topics and all(topics.values()) for topics in offsets._groups.values()), "no group without an offset"
