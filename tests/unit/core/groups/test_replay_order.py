"""A group that is upgraded and downgraded, read again from whatever compaction may leave of its log (KAFKA-21117).

│ last of each key, below any offset │ all of the rest │   a pass that was interrupted, or is over
│ all │ last of each key │ all of the rest            │   somebody who read on while a pass was made
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import pytest

from odradek.core.coordinators.state_log import NON_TRANSACTIONAL
from odradek.core.groups.classic import ClassicGroup
from odradek.core.groups.consumer import ConsumerGroup
from odradek.core.groups.group_coordinator import REPLAYS
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.record.internal.group_metadata import GroupMetadataKey
from odradek.record.internal.internal_codec import decode_key
from odradek.record.records import iter_records
from scenario.interpreter import outcomes
from scenario.world import World
from support.cleaning import batches_of
from support.kept import kept

STORY = """
topic t partitions=4
topic tt
join g a topics=t
share g a a=t-0,t-1
commit g a t-0=1
enter g n topics=t
settle g n
quit g n
join g a topics=t
share g a a=t-0,t-1
enter g m regex=t+
enter g n topics=t,tt
settle g n m
poll g m regex=tt
join g a topics=t
share g a
quit g m
quit g n
leave g a
enter g x topics=t instance=i
quit g x for=while
"""


class Record(NamedTuple):
    key: bytes
    value: bytes | None


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("story"))
    made.configure({"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"})
    for line in STORY.strip().splitlines():
        outcomes(made, line)
    return made


@pytest.fixture(scope="module")
def log(world: World) -> list[Record]:
    batches = batches_of(_shard(world).log.leading.log)
    return [Record(one.key or b"", one.value) for batch in batches for one in iter_records(batch)]


def _shard(world: World) -> GroupShard:
    return world.harness.broker.groups.shards.shard(0)


def replay(world: World, records: Sequence[Record]) -> GroupShard:
    served = _shard(world)
    shard = GroupShard(served.log.leading, served.runtime, REPLAYS, ClassicGroup)
    for key, value in records:
        shard.replay(key, value, NON_TRANSACTIONAL)
    return shard


def compacted(records: Sequence[Record]) -> list[Record]:
    last = {key: position for position, (key, _) in enumerate(records)}
    return [one for position, one in enumerate(records) if last[one.key] == position]


def interrupted(log: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    """Yield logs of a pass up to `end` that has replaced only the records below `front`."""
    for end in range(len(log) + 1):
        last = {key: position for position, (key, _) in enumerate(log[:end])}
        for front in range(end + 1):
            left = [one for position, one in enumerate(log[:front]) if last[one.key] == position]
            values = [one for one in left if one.value is not None]
            yield f"up to {end}, {front} swapped", [*left, *log[front:]]
            yield f"up to {end}, {front} swapped, tombstones gone", [*values, *log[front:]]


def partly_compacted_logs(log: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    for start in range(len(log) + 1):
        for end in range(start, len(log) + 1):
            yield f"{start} to {end}", [*log[:start], *compacted(log[start:end]), *log[end:]]


def kinds(world: World, log: Sequence[Record]) -> list[type | None]:
    """Return the type of the group after each record."""
    groups = [replay(world, log[: end + 1]).groups.get("g") for end in range(len(log))]
    return [None if group is None else type(group) for group in groups]


def test_example_history_upgrades_and_downgrades_three_times(world: World, log: Sequence[Record]) -> None:
    seen = [kind for kind in kinds(world, log) if kind is not None]
    assert [kind for kind, _ in groupby(seen)] == [ClassicGroup, ConsumerGroup] * 3


@pytest.mark.slow
def test_any_compacted_log_restores_the_same_groups(world: World, log: Sequence[Record]) -> None:
    expected = kept(_shard(world))
    assert kept(replay(world, log)) == expected
    for variants in (interrupted, partly_compacted_logs):
        for how, records in variants(log):
            assert kept(replay(world, records)) == expected, how


def test_records_of_both_protocols_are_replayed_in_any_order(world: World, log: Sequence[Record]) -> None:
    """Apache Kafka's loader refuses or refused such logs (KAFKA-21117)."""
    seen = kinds(world, log)
    downgraded = seen.index(ClassicGroup, seen.index(ConsumerGroup))
    story, downgrade = log[:downgraded], log[downgraded]
    classic = [one for one in story if _is_classic(one) and one.value is not None]
    consumer = [one for one in story if not _is_classic(one) and one.value is not None]
    tombstones = [one for one in story if not _is_classic(one) and one.value is None]
    assert classic and consumer and tombstones
    assert isinstance(replay(world, [*classic, *consumer]).groups["g"], ConsumerGroup)
    expected = kept(replay(world, log[: downgraded + 1]))
    assert kept(replay(world, [*classic, *consumer, *tombstones, downgrade])) == expected
    assert kept(replay(world, [*classic, *consumer, downgrade, *tombstones])) == expected
    assert kept(replay(world, [downgrade, *tombstones])).classic == expected.classic


def _is_classic(record: Record) -> bool:
    return isinstance(decode_key(record.key), GroupMetadataKey)
