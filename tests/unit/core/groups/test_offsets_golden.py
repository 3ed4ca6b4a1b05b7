"""Offsets stored by Apache Kafka 4.4.0, compared with Kafka's own view of them.

Captured by tests/interop/capture_golden_offsets.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.inter_broker_protocol import protocol_of
from odradek.core.coordinators.state_log import NOBODY
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.groups.shard.offsets import record_of, tombstones
from odradek.record.internal.internal_codec import decode_key, decode_value, encode
from odradek.record.internal.offset_commit_records import OffsetCommitKey, OffsetCommitValue
from odradek.record.record_batch import iter_batches
from odradek.record.records import iter_records
from support.group_offsets import GroupOffsets, groups
from support.in_memory import Harness
from support.transactional import make_topic

GOLDEN = Path(__file__).parents[3] / "golden" / "kafka-4.4.0" / "offsets"
LOG = GOLDEN / "00000000000000000000.log"
KEPT = json.loads((GOLDEN / "kept.json").read_text())


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """Return a broker that has opened Kafka's log as its own."""
    harness = Harness(tmp_path, offsets_topic_num_partitions="1")
    make_topic(harness, "t", 2)
    GroupOffsets(harness)
    (tmp_path / "__consumer_offsets-0" / LOG.name).write_bytes(LOG.read_bytes())
    harness.kill()
    harness.settle()
    return harness


def shard_of(harness: Harness) -> GroupShard:
    return harness.broker.groups.shards.shard(0)


def test_offsets_and_groups_match_kafkas(harness: Harness) -> None:
    offsets = shard_of(harness).offsets
    found = [
        [group, topic, partition, value.offset, value.leader_epoch, value.metadata]
        for group in sorted(offsets.groups())
        for topic, partitions in sorted(offsets.of_group(group).items())
        for partition, value in sorted(partitions.items())
    ]
    assert found == KEPT["committed"]
    unstable = [
        [*place] for group, topic, partition, *_ in found if offsets.is_pending(*(place := (group, topic, partition)))
    ]
    assert unstable == KEPT["unstable"]
    assert sorted(groups(harness)) == KEPT["groups"]


def test_groups_of_kafka_remain_usable(harness: Harness) -> None:
    group = GroupOffsets(harness, "members")
    assert group.delete().name == "NON_EMPTY_GROUP"
    shard = shard_of(harness)
    shard.write(tombstones(shard.offsets.places_of_group("txn")), harness.now, NOBODY)
    harness.kill()
    harness.settle()
    assert "txn" not in shard_of(harness).offsets.groups()


def test_written_records_have_the_same_bytes_as_kafkas() -> None:
    records = [one for batch in iter_batches(LOG.read_bytes()) if not batch.is_control for one in iter_records(batch)]
    newest = protocol_of(BrokerConfigs.parse({})).offset_value
    offsets = 0
    for record in records:
        key = decode_key(record.key or b"")
        if isinstance(key, OffsetCommitKey) and record.value is not None:
            value = decode_value(key, record.value)
            assert isinstance(value, OffsetCommitValue)
            version = record_of(key, value).version
            written = encode(key, value, newest if version is None else version)
            assert written == (record.key, record.value)
            offsets += 1
    assert offsets > 30
