"""Dynamic broker keys: each one with an effect changes the broker's behaviour immediately.

The tests observe the behaviour, not the described value. Keys without a case here are listed with their test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.app.config.effective import EFFECTIVE
from odradek.base.errors import ErrorCode
from odradek.base.units import LeaderEpoch, TopicName, TopicPartition
from odradek.core.cleaner.cleaning_steps import Clean
from odradek.core.configs.broker_keys import BROKER_KEYS
from odradek.core.configs.definition import READ_ONLY
from odradek.core.disks.flushes import Sync
from odradek.core.partition.partition import Partition
from odradek.log.compaction.cleaner import Options
from odradek.log.log.durability import flush_now
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.configuring import BROKER, SET, alter
from support.controlling import OTHER, Controlling
from support.in_memory import US, Harness

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NEVER_MS = str(1 << 62)
COMPACT = {"cleanup.policy": "compact"}
TEXT = Path(__file__).read_bytes()  # Content that some codecs compress better than others, and better at higher levels.
# Keys outside the core, or without use for a broker with one directory and no TLS.
ELSEWHERE = {
    "group.consumer.assignment.interval.ms": "tests/unit/core/groups/test_assignment_interval.py",
    "listener.security.protocol.map": "refused: tests/unit/core/configs/test_config_validation.py",
    "listeners": "refused: tests/unit/core/configs/test_config_validation.py",
    "log.cleaner.io.max.bytes.per.second": "tests/interop/test_altered_threads.py",
    "max.connections": "tests/interop/test_configs.py",
    "max.connections.per.ip": "tests/interop/test_configs.py",
    "min.insync.replicas": "tests/unit/api/test_led_with_followers.py",
    "num.network.threads": "tests/interop/test_altered_threads.py",
    "odradek.record.validation": "tests/interop/test_validated_altered.py",
    "replica.alter.log.dirs.io.max.bytes.per.second": "tests/unit/core/disks/test_log_dir_moves.py",
}
TLS = "tests/interop/test_configs_tls.py"


class Case(NamedTuple):
    """A key's new value, the results of `measure` before and after, and the configuration of the broker."""

    value: str
    measure: Callable[[Harness], object]
    before: object
    after: object
    configs: Mapping[str, str] = {}


def topic(harness: Harness, name: str = "t", **configs: str) -> Partition:
    known = harness.broker.partitions.get(TopicPartition(TopicName(name), 0))
    if known is not None:
        return known
    texts = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    created = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=texts)
    assert not harness.request(CreateTopicsRequest(topics=[created]), 7, CreateTopicsResponse).topics[0].error_code
    return harness.broker.partitions[TopicPartition(TopicName(name), 0)]


def produce(
    harness: Harness, *records: RecordIn, codec: Codec = Codec.NONE, acks: int = 1, producer: int | None = None
) -> tuple[int, int]:
    """Return the error and the append time; `producer` writes in a transaction that has not started."""
    topic(harness)
    of_producer = {} if producer is None else {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
    now = harness.now.wall
    raw = encode_batch(
        records or [(b"k", b"v", (), now)],
        codec,
        is_transactional=producer is not None,
        **of_producer,  # type: ignore[arg-type]
    )
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(raw))])]
    id_ = None if producer is None else "nobody"
    request = ProduceRequest(transactional_id=id_, acks=acks, timeout_ms=1000, topic_data=data)
    (part,) = harness.request(request, 9, ProduceResponse).responses[0].partition_responses
    return part.error_code, part.log_append_time_ms


def error_of(key: bytes | None = b"k", size: int = 1, age_ms: int = 0, codec: Codec = Codec.NONE) -> Callable[..., int]:
    """Return a measurement of the error code of a produce."""
    return lambda harness: produce(harness, (key, b"v" * size, (), harness.now.wall - age_ms), codec=codec)[0]


def stored_bytes(harness: Harness) -> int:
    log, now = topic(harness).log, harness.now.wall
    before = log.size
    produce(harness, (b"k", TEXT, (), now))
    return log.size - before


def put(harness: Harness, partition: Partition, count: int = 1, size: int = 10, *, rolls: bool = False) -> None:
    """Append batches, and roll the segment if `rolls`; all of it is synced and visible."""
    log, now = partition.log, harness.now.wall
    for number in range(count):
        raw = encode_batch([(b"k%d" % (number % 10), b"v" * size, (), now)])
        log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), now)
    if rolls:
        log.roll(now)
    flush_now(log, now)
    partition.positions.advance_high_watermark(log.end_offset)
    partition.positions.advance_durable_end(log.end_offset)


def run_housekeeping(harness: Harness, ms: int = 60_000, rounds: int = 5) -> None:
    harness.pass_time(ms)
    for _ in range(rounds):
        harness.run_housekeeping()
        harness.pass_time(1000)


def is_cleaned(harness: Harness) -> bool:
    """Return whether records of a compacted topic are compacted within a minute."""
    partition = topic(harness, "table", cleanup_policy="compact")
    run_housekeeping(harness)
    put(harness, partition, 30, rolls=True)
    run_housekeeping(harness)
    return partition.log.compaction.cleaned_to == partition.log.end_offset


def passes(harness: Harness) -> list[Options]:
    """Compact three topics, and return properties of the first passes."""
    run_housekeeping(harness)
    for name in ("a", "b", "c"):
        partition = topic(harness, name, cleanup_policy="compact")
        put(harness, partition, 30, rolls=True)
    harness.pass_time(60_000)
    harness.run_housekeeping_in_slices()
    begun = [one for one in harness.broker.take_effects() if isinstance(one, Clean)]
    for one in begun:
        harness.broker.on_event(one.run(lambda _: None), harness.now)
    harness.settle()
    return [one.cleaning._options for one in begun]


def syncs(harness: Harness) -> int:
    """Return the number of syncs in a minute after a produce that does not wait for one."""
    partition = topic(harness)
    harness.settle()
    raw = encode_batch([(b"k", b"v", (), harness.now.wall)])
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(raw))])]
    harness.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 9)
    found = [one for one in harness.broker.take_effects() if isinstance(one, Sync)]
    harness.pass_time(60_000)
    harness.run_housekeeping_in_slices()
    found += [one for one in harness.broker.take_effects() if isinstance(one, Sync)]
    for one in found:
        harness.broker.on_event(one.run(), harness.now)
    assert partition.is_online
    return len(found)


def segments(count: int, size: int, between_ms: int = 0) -> Callable[[Harness], int]:
    """Return a measurement of the number of segments that the batches start."""

    def measure(harness: Harness) -> int:
        partition = topic(harness)
        before = len(partition.log.segments)
        for _ in range(count):
            put(harness, partition, size=size)
            harness.pass_time(between_ms)
        return len(partition.log.segments) - before

    return measure


def index_entries(harness: Harness) -> int:
    partition = topic(harness)
    partition.log.roll(harness.now.wall)
    put(harness, partition, 10, 100)
    return len(partition.log.segments[-1].offsets)


def new_file_bytes(harness: Harness) -> int:
    partition = topic(harness)
    put(harness, partition)
    partition.log.roll(harness.now.wall)
    return Path(partition.log.segments[-1].path).stat().st_size


def is_deleted_by_retention(harness: Harness) -> bool:
    """Return whether retention deletes an hour-old record of a plain topic."""
    partition = topic(harness)
    run_housekeeping(harness)
    put(harness, partition, 2, rolls=True)
    put(harness, partition)
    end = partition.log.segments[-1].base_offset
    run_housekeeping(harness, HOUR_MS)
    return partition.log.start_offset >= end


def files_left(harness: Harness) -> bool:
    """Return whether deleted files are kept for a while."""
    assert is_deleted_by_retention(harness)
    folder = Path(topic(harness).log.directory)
    before = set(folder.glob("*.deleted"))
    assert is_deleted_by_retention(harness)
    return bool(set(folder.glob("*.deleted")) - before)


def producers(harness: Harness) -> int:
    """Return the number of known idempotent producers after an hour of silence."""
    partition = topic(harness)
    raw = encode_batch([(b"k", b"v", (), harness.now.wall)], producer_id=7, producer_epoch=0, base_sequence=0)
    if not len(partition.log.producers):
        partition.log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), harness.now.wall)
    run_housekeeping(harness, HOUR_MS)
    return len(partition.log.producers)


def joins(harness: Harness) -> bool:
    """Return whether a transactional produce to a partition outside the transaction is accepted."""
    return produce(harness, producer=7)[0] == GOOD


def fetchers(harness: Harness) -> int:
    """Return the number of fetchers for a leader of eight partitions."""
    broker, both = harness.broker, (OTHER, US)
    if TopicPartition(TopicName("f"), 0) not in broker.partitions:
        assert not Controlling(harness).send_leader_and_isr("f", *range(8), leader=OTHER, replicas=both, is_new=True)
    taken = broker.fetchers.take_requests()
    for fetcher, request in taken:
        fetcher.failed(request, ErrorCode.NETWORK_EXCEPTION, harness.now)
    harness.pass_time(60_000)
    return len(taken)


GOOD = ErrorCode.NONE
CASES = {
    "compression.type": Case("gzip", lambda harness: stored_bytes(harness) > len(TEXT), True, False),
    "log.cleanup.policy": Case("compact", error_of(key=None), GOOD, ErrorCode.INVALID_RECORD),
    "log.cleaner.backoff.ms": Case("0", is_cleaned, False, True, {"log.cleaner.backoff.ms": str(DAY_MS)}),
    "log.cleaner.max.compaction.lag.ms": Case(
        "1000", is_cleaned, False, True, {"log.cleaner.min.cleanable.ratio": "1.0"}
    ),
    "log.cleaner.min.cleanable.ratio": Case("0.1", is_cleaned, False, True, {"log.cleaner.min.cleanable.ratio": "1.0"}),
    "log.cleaner.min.compaction.lag.ms": Case(
        "0", is_cleaned, False, True, {"log.cleaner.min.compaction.lag.ms": str(DAY_MS)}
    ),
    "log.cleaner.threads": Case("2", lambda harness: len(passes(harness)), 1, 2),
    "log.cleaner.dedupe.buffer.size": Case(
        "2000000", lambda harness: passes(harness)[0].memory_bytes, 134_217_728, 2_000_000
    ),
    "log.cleaner.io.buffer.size": Case("4000", lambda harness: passes(harness)[0].io_bytes, 262_144, 2_000),
    "log.cleaner.io.buffer.load.factor": Case("0.5", lambda harness: passes(harness)[0].load_factor, 0.9, 0.5),
    "log.cleaner.delete.retention.ms": Case(
        "7", lambda harness: passes(harness)[0].rules.horizon - harness.now.wall, DAY_MS, 7
    ),
    "log.flush.interval.messages": Case("1", syncs, 0, 1),
    "log.flush.interval.ms": Case("1000", syncs, 0, 1),
    "log.index.interval.bytes": Case("0", index_entries, 0, 9),
    "log.index.size.max.bytes": Case("16", segments(10, 10), 0, 9, {"log.index.interval.bytes": "0"}),
    "log.message.timestamp.after.max.ms": Case("1000", error_of(age_ms=-60_000), GOOD, ErrorCode.INVALID_TIMESTAMP),
    "log.message.timestamp.before.max.ms": Case("1000", error_of(age_ms=60_000), GOOD, ErrorCode.INVALID_TIMESTAMP),
    "log.message.timestamp.difference.max.ms": Case("1000", error_of(age_ms=60_000), GOOD, ErrorCode.INVALID_TIMESTAMP),
    "log.message.timestamp.type": Case("LogAppendTime", lambda harness: produce(harness)[1] > 0, False, True),
    "log.preallocate": Case("true", new_file_bytes, 0, 1 << 20, {"log.segment.bytes": str(1 << 20)}),
    "log.retention.bytes": Case("1", is_deleted_by_retention, False, True),
    "log.retention.ms": Case("1000", is_deleted_by_retention, False, True),
    "log.roll.ms": Case("1000", segments(2, 10, 5000), 0, 2),
    "log.roll.jitter.ms": Case("100000", segments(2, 10, 99_990), 0, 2, {"log.roll.ms": "100000"}),
    "log.segment.bytes": Case(str(1 << 20), segments(10, 200_000), 0, 2),
    "log.segment.delete.delay.ms": Case(
        "0", files_left, True, False, {"log.segment.delete.delay.ms": str(9 * DAY_MS), "log.retention.ms": "1000"}
    ),
    "max.decompressed.message.bytes": Case(
        "100", error_of(size=1000, codec=Codec.GZIP), GOOD, ErrorCode.INVALID_RECORD, {"log.cleanup.policy": "compact"}
    ),
    "message.max.bytes": Case("100", error_of(size=1000), GOOD, ErrorCode.MESSAGE_TOO_LARGE),
    "num.replica.fetchers": Case("2", fetchers, 1, 2),
    "producer.id.expiration.ms": Case("1000", producers, 1, 0),
    "transaction.partition.verification.enable": Case("false", joins, False, True),
    # The shell notifies the controller, which elects: unit/core/controller/test_replica_election.py.
    "unclean.leader.election.enable": Case("true", lambda harness: list(harness.broker.unclean_enabled), [], [None]),
}
# Compression levels, the lowest first.
LEVELS = {"gzip": ("1", "9"), "zstd": ("1", "19")}


def alter_config(harness: Harness, key: str, value: str) -> None:
    (response,) = harness.request(
        alter((BROKER, "", [(key, SET, value)])), 1, IncrementalAlterConfigsResponse
    ).responses
    assert response.error_code == GOOD, response.error_message


def test_every_dynamic_key_has_a_case_or_another_test() -> None:
    levels = {f"compression.{codec}.level" for codec in LEVELS}
    tls = {name for name in EFFECTIVE if name.startswith("ssl.")}
    alterable = {name for name in EFFECTIVE if BROKER_KEYS[name].mode is not READ_ONLY}
    assert alterable == {*CASES, *levels, *tls, *ELSEWHERE}
    tests = [text.split()[-1] for text in (*ELSEWHERE.values(), TLS)]
    assert all((Path(__file__).parents[3] / test).exists() for test in tests)


@pytest.mark.parametrize("key", CASES)
def test_altered_key_applies_immediately(tmp_path: Path, key: str) -> None:
    case = CASES[key]
    harness = Harness(tmp_path, **case.configs)
    assert case.measure(harness) == case.before
    alter_config(harness, key, case.value)
    assert case.measure(harness) == case.after


@pytest.mark.parametrize("codec", LEVELS)
def test_altered_compression_level_applies_immediately(tmp_path: Path, codec: str) -> None:
    key, (hardly, hard) = f"compression.{codec}.level", LEVELS[codec]
    harness = Harness(tmp_path, **{"compression.type": codec, key: hardly})
    loose = stored_bytes(harness)
    alter_config(harness, key, hard)
    assert stored_bytes(harness) < loose
