"""Batches staged in one turn: they are written together, and succeed or fail together."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.limits import STAGED_BYTES_MAX
from odradek.base.units import TopicName
from odradek.core.partition.partition import Partition
from odradek.core.partition.staging import Append
from odradek.log.files.disk import DiskFailed, RealFile
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from support.in_memory import NOW_MS, US
from support.in_memory import Harness as Broker


def batch(size: int = 100, count: int = 1) -> Batch:
    return Batch.checked(bytearray(encode_batch([(None, bytes(size), (), NOW_MS)] * count)))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    yield Broker(tmp_path)


def partition(broker: Broker, name: str = "t", **configs: str) -> Partition:
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=entries)
    created = broker.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)
    assert created.topics[0].error_code == ErrorCode.NONE
    found = broker.broker.replica(TopicName(name), 0)
    assert US in found.info.replicas
    return found


def stage(broker: Broker, where: Partition, one: Batch, *, all_replicas: bool = False) -> Append:
    return broker.broker.stage(where.leader(), one, broker.now, all_replicas=all_replicas)


def test_offsets_are_assigned_immediately_and_written_at_the_commit(broker: Broker) -> None:
    where = partition(broker)
    appends = [stage(broker, where, batch(count=count)) for count in (1, 3, 2)]
    assert [(one.base_offset, one.end) for one in appends] == [(0, 1), (1, 4), (4, 6)]
    assert where.log.end_offset == 0 == where.positions.high_watermark
    broker.broker.commit(broker.now)
    assert where.log.end_offset == 6 == where.positions.high_watermark
    assert stage(broker, where, batch()).base_offset == 6


def test_batch_that_waits_for_a_sync_is_invisible(broker: Broker) -> None:
    where = partition(broker)
    stage(broker, where, batch())
    waiting = stage(broker, where, batch(), all_replicas=True)
    broker.broker.commit(broker.now)
    assert waiting.needs_sync
    assert where.positions.high_watermark == 1
    broker.settle()
    assert where.positions.high_watermark == 2 == where.positions.durable_end


def test_failed_write_fails_all_its_batches_and_is_undone(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    full, other = partition(broker, "full"), partition(broker, "other")
    stage(broker, full, batch())
    broker.broker.commit(broker.now)
    failing = [stage(broker, full, batch()) for _ in range(3)]
    fine = stage(broker, other, batch())
    with monkeypatch.context() as patch:
        write_all = RealFile.write_all

        def no_space(file: RealFile, position: int, buffers: list[bytes]) -> None:
            if "full-0" in file.path:
                raise DiskFailed(errno.ENOSPC, "no space left", file.path)
            write_all(file, position, buffers)

        patch.setattr(RealFile, "write_all", no_space)
        broker.broker.commit(broker.now)
    assert [one.refused and one.refused.code for one in failing] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert fine.refused is None and other.log.end_offset == 1
    assert full.log.end_offset == 1 == full.positions.high_watermark
    assert stage(broker, full, batch()).base_offset == 1, "the next one takes their place"


def test_no_write_is_larger_than_a_segment_or_the_bound(broker: Broker) -> None:
    small, large = partition(broker, "small", internal_segment_bytes="1000"), partition(broker, "large")
    for _ in range(20):
        stage(broker, small, batch(size=300))
    for _ in range(5):
        stage(broker, large, batch(size=STAGED_BYTES_MAX // 3))
    assert 0 < small.log.end_offset < 20 and 0 < large.log.end_offset < 5, "earlier ones were written on the way"
    broker.broker.commit(broker.now)
    assert small.log.end_offset == 20 and large.log.end_offset == 5
    assert all(segment.size <= 1_000 for segment in small.log.segments)
