"""Offsets of a shard, compared with a naive reading of its log: the last effective record is decisive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import NamedTuple
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import ProducerEpoch, ProducerId, TopicName
from odradek.core.coordinators import shard_loading as loading
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.groups.shard.offsets import NEVER, GroupOffsets, GroupTopicPartition, record_of
from odradek.core.groups.shard.offsets import tombstones as tombstones_of
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.internal.internal_codec import decode_key, decode_value, encode
from odradek.record.internal.offset_commit_records import OffsetCommitKey, OffsetCommitValue
from odradek.record.record_batch import Batch
from support.kept import committed_offsets, pending
from support.logs import T0

EPOCH = ProducerEpoch(0)
NO_PRODUCER = -1
GROUPS, TOPICS, PARTITIONS, PRODUCERS = ("g", "h"), ("t", "u"), (0, 1), (NO_PRODUCER, 1, 2)
PLACES = [(group, topic, partition) for group in GROUPS for topic in TOPICS for partition in PARTITIONS]


class Record(NamedTuple):
    """A commit, in a producer's transaction if one is given; an offset of None is a tombstone."""

    place: GroupTopicPartition
    offset: int | None
    producer: int = NO_PRODUCER


class End(NamedTuple):
    """An end-of-transaction marker."""

    producer: int
    is_commit: bool


Log = Sequence[Record | End]

places = st.sampled_from(PLACES)
records = st.builds(Record, places, st.integers(0, 1 << 40), st.sampled_from(PRODUCERS))
tombstones = st.builds(Record, places, st.none(), st.just(NO_PRODUCER))
ends = st.builds(End, st.sampled_from([1, 2]), st.booleans())
logs = st.lists(st.one_of(records, records, tombstones, ends), max_size=60)


def load_offsets(log: Log) -> GroupOffsets:
    return replay_log(GroupOffsets(), log)


def replay_log(offsets: GroupOffsets, log: Log) -> GroupOffsets:
    for one in log:
        if isinstance(one, End):
            offsets.end_transaction(one.producer, is_commit=one.is_commit)
        else:
            group, topic, partition = one.place
            value = None if one.offset is None else committed(one.offset)
            offsets.replay(OffsetCommitKey(group=group, topic=topic, partition=partition), value, one.producer)
    return offsets


def committed(offset: int, expires: int = NEVER) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, metadata="", commit_timestamp=offset % 7, expire_timestamp=expires)


def outcome(log: Log, position: int, producer: int) -> bool | None:
    """Return the end of the transaction with the record at this position; None if it is open."""
    return next((one.is_commit for one in log[position:] if isinstance(one, End) and one.producer == producer), None)


def truth(log: Log, place: GroupTopicPartition) -> int | None:
    for position, one in reversed(list(enumerate(log))):
        counts = isinstance(one, Record) and one.place == place
        if counts and isinstance(one, Record) and (one.producer < 0 or outcome(log, position, one.producer)):
            return one.offset
    return None


def is_open(log: Log, place: GroupTopicPartition) -> bool:
    last = max((position for position, one in enumerate(log) if one == Record(place, None)), default=-1)
    return any(
        isinstance(one, Record)
        and one.place == place
        and one.producer >= 0
        and outcome(log, position, one.producer) is None
        for position, one in enumerate(log)
        if position > last
    )


def stored_offsets(offsets: GroupOffsets) -> dict[GroupTopicPartition, int]:
    found = {place: offsets.find_offset(*place) for place in PLACES}
    return {place: value.offset for place, value in found.items() if value is not None}


def whole(log: Log) -> dict[GroupTopicPartition, int]:
    found = {place: truth(log, place) for place in PLACES}
    return {place: offset for place, offset in found.items() if offset is not None}


@given(logs)
def test_offset_is_that_of_the_last_effective_record(log: Log) -> None:
    offsets = load_offsets(log)
    assert stored_offsets(offsets) == whole(log)
    assert len(offsets) == len(whole(log))
    pending = {place for place in PLACES if is_open(log, place)}
    assert {place for place in PLACES if offsets.is_pending(*place)} == pending
    assert {group for group in GROUPS if offsets.has_pending_of(group)} == {place[0] for place in pending}
    assert set(offsets.groups()) == {place[0] for place in pending | whole(log).keys()}
    assert {place for place in PLACES if offsets.has(*place)} == pending | whole(log).keys()
    for group in GROUPS:
        assert all(offsets.of_group(group).values()), "nothing is left of a topic without offsets"


def compacted(log: Log, end: int) -> Log:
    """Return the log compacted up to `end`: the last record of each place, unless it was aborted."""
    last = {
        one.place: at
        for at, one in enumerate(log[:end])
        if isinstance(one, Record) and outcome(log, at, one.producer) is not False
    }
    return [one for at, one in enumerate(log) if at >= end or isinstance(one, End) or last.get(one.place) == at]


def first_open(log: Log) -> int:
    """Return the position of the first open transaction, where compaction ends."""
    is_open = (
        isinstance(one, Record) and one.producer >= 0 and outcome(log, at, one.producer) is None
        for at, one in enumerate(log)
    )
    return next((at for at, found in enumerate(is_open) if found), len(log))


@given(logs, logs, st.data())
def test_compacted_log_restores_the_same_offsets(log: Log, later: Log, data: st.DataObject) -> None:
    """Transactions that are open at that point may end either way."""
    end = data.draw(st.integers(0, first_open(log)))
    offsets, again = load_offsets(log), load_offsets(compacted(log, end))
    assert {place: again.find_offset(*place) for place in PLACES} == {
        place: offsets.find_offset(*place) for place in PLACES
    }
    assert pending(again) == pending(offsets)
    assert stored_offsets(replay_log(again, later)) == stored_offsets(replay_log(offsets, later))


@given(logs, st.sampled_from(GROUPS), st.sets(st.sampled_from(TOPICS)))
def test_tombstones_delete_the_offsets_of_a_group_or_topic(log: Log, group: str, topics: set[str]) -> None:
    offsets = load_offsets(log)
    before = stored_offsets(offsets)
    names = [TopicName(topic) for topic in topics]
    for places in (offsets.places_of_group(group), *offsets.places_of_topics(names)):
        for tombstone in tombstones_of(places):
            assert isinstance(tombstone.key, OffsetCommitKey) and tombstone.value is None
            offsets.replay(tombstone.key, None, NO_PRODUCER)
    for producer in (1, 2):
        offsets.end_transaction(producer, is_commit=True)
    deleted = {place for place in PLACES if place[0] == group or place[1] in topics}
    assert stored_offsets(offsets).keys().isdisjoint(deleted)
    assert not any(map(offsets.has_pending_of, GROUPS))
    left = {place: offset for place, offset in before.items() if place not in deleted}
    assert stored_offsets(offsets).items() >= {(p, o) for p, o in left.items() if not any(_is_txn_of(log, p))}


def _is_txn_of(log: Log, place: GroupTopicPartition) -> Iterable[bool]:
    return (isinstance(one, Record) and one.place == place and one.producer >= 0 for one in log)


def test_offset_with_its_own_expiry_is_written_in_version_1() -> None:
    record = record_of(OffsetCommitKey(group="g", topic="t", partition=0), committed(1, expires=99))
    key, value = encode(record.key, record.value, record.version or 0)
    assert value is not None and value[:2] == b"\x00\x01"
    assert decode_value(decode_key(key), value) == record.value


def test_values_shared_by_many_offsets_are_stored_once() -> None:
    offsets = GroupOffsets()
    for partition in range(3):
        value = OffsetCommitValue(
            offset=partition, metadata="x" * 100, commit_timestamp=1 << 40, topic_id=bytes(15) + b"\x01"
        )
        # As if each value had been read from the log.
        key, data = encode(OffsetCommitKey(group="g", topic="t", partition=partition), value, 4)
        decoded = decode_key(key)
        assert isinstance(decoded, OffsetCommitKey) and data is not None
        kept = decode_value(decoded, data)
        assert isinstance(kept, OffsetCommitValue)
        offsets.replay(decoded, kept, NO_PRODUCER)
    first, *others = offsets.of_group("g")["t"].values()
    for other in others:
        assert other.metadata is first.metadata
        assert other.commit_timestamp is first.commit_timestamp
        assert other.topic_id is first.topic_id


class Loaded:
    """A shard that applies the records of a load; these logs have no group records."""

    def __init__(self) -> None:
        self.offsets = GroupOffsets()
        self.decoded = 0

    replay = GroupShard.replay
    replay_end = GroupShard.replay_end
    is_replaceable = GroupShard.is_replaceable

    def _apply(self, key: object, value: object | None, producer: ProducerIdAndEpoch) -> None:
        assert isinstance(key, OffsetCommitKey)
        assert value is None or isinstance(value, OffsetCommitValue)
        self.offsets.replay(key, value, producer.id)
        self.decoded += 1


def batches_of(log: Log, sizes: Iterator[int]) -> Iterator[Batch]:
    """Return batches of these sizes; each has consecutive records of one producer."""
    for producer, run in groupby(log, key=lambda one: (one.producer, isinstance(one, End))):
        left = list(run)
        while left and isinstance(left[0], End):
            yield end_marker_batch(EndMarker(left.pop(0).is_commit, 0), ProducerId(producer[0]), EPOCH, T0)
        while left:
            size = next(sizes)
            encoded = [_encoded(one) for one in left[:size] if isinstance(one, Record)]
            del left[:size]
            owner = {"producer_id": producer[0], "producer_epoch": EPOCH, "is_transactional": True}
            yield Batch.trusted(encode_batch(encoded, **(owner if producer[0] >= 0 else {})))


def _encoded(one: Record) -> tuple[bytes, bytes | None, tuple[()], int]:
    group, topic, partition = one.place
    value = None if one.offset is None else committed(one.offset)
    return *encode(OffsetCommitKey(group=group, topic=topic, partition=partition), value, 4), (), T0


@given(logs, st.data())
def test_batched_replay_restores_the_same_offsets(log: Log, data: st.DataObject) -> None:
    """Replay of batches skips records that later ones replace."""
    offsets, loaded = load_offsets(log), Loaded()
    bounds = st.sampled_from([1, 2, 5, 1000])
    with mock.patch.multiple(loading, DECODED_ROWS_MAX=data.draw(bounds), LATEST_MAX=data.draw(bounds)):
        replaying = loading.StateReplay(loaded)
        for batch in batches_of(log, iter(lambda: data.draw(st.integers(1, 4)), 0)):
            replaying.replay_batch(batch)
        replaying.finish()
    assert replaying.count == sum(isinstance(one, Record) for one in log)
    assert committed_offsets(loaded.offsets) == committed_offsets(offsets)
    assert list(committed_offsets(loaded.offsets)) == list(committed_offsets(offsets)), "listed in the same order"
    assert pending(loaded.offsets) == pending(offsets)
    assert loaded.offsets._open == offsets._open
    assert {place for place in PLACES if loaded.offsets.is_pending(*place)} == {
        place for place in PLACES if offsets.is_pending(*place)
    }


def test_batched_replay_decodes_only_the_last_commit() -> None:
    loaded = Loaded()
    replaying = loading.StateReplay(loaded)
    for batch in batches_of([Record(place, offset) for offset in range(500) for place in PLACES], repeat(30)):
        replaying.replay_batch(batch)
    replaying.finish()
    assert replaying.count == 500 * len(PLACES)
    assert loaded.decoded == len(PLACES)
    assert stored_offsets(loaded.offsets) == dict.fromkeys(PLACES, 499)
