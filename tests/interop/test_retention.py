"""Segments deleted by retention: the same on Odradek and, with --soak, on Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from clients.fixtures import BROKERS, broker

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.admin import admin
from odradek.client.admin.record_deletion import delete_records
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.consumer.offset_lookup import EARLIEST, list_offsets
from odradek.client.producer.delivery import produce
from odradek.record.builder import encode_batch
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from support.waiting import until

SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",  # Kafka's interval for compacted topics.
    "log.segment.delete.delay.ms": "0",
}
ANY_TIME = {"message.timestamp.after.max.ms": "9223372036854775807"}
MIB, HOUR_MS = 1 << 20, 3_600_000
VALUE = b"x" * 100_000  # Ten of them fill a segment of a MiB.
TOPIC_RESOURCE, SET = 2, 0
FILES_SECONDS_MAX = 20  # Files are deleted a moment after the log start moves.


class Case(NamedTuple):
    """Records to write, by age in ms, and the base offsets and the log start expected after retention."""

    ages: Sequence[int]
    configs: Mapping[str, str]
    left: list[int]
    start: int
    trimmed: int = 0
    altered: Mapping[str, str] = {}


OLD, NEW, FUTURE = 10 * HOUR_MS, 0, -(1 << 60)
HOUR = {"retention.ms": str(HOUR_MS)}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "min.compaction.lag.ms": "9999999"}
CASES = {
    "age": Case([OLD] * 20 + [NEW] * 10, HOUR, [20], 20),
    "the newest record counts": Case([OLD] * 9 + [NEW] + [OLD] * 10 + [NEW], HOUR, [0, 10, 20], 0),
    "the oldest go first": Case([NEW] * 10 + [OLD] * 20, HOUR, [0, 10, 20], 0),
    "from the future": Case([OLD] * 10 + [FUTURE] + [OLD] * 19, HOUR, [10, 20], 10),
    "from the future, by size": Case([FUTURE] + [NEW] * 39, HOUR | {"retention.bytes": f"{2 * MIB}"}, [10, 20, 30], 10),
    "size, and what was held by it": Case([FUTURE] + [OLD] * 39, HOUR | {"retention.bytes": f"{2 * MIB}"}, [40], 40),
    "all of it, the open one too": Case([OLD] * 25, HOUR, [25], 25),
    "nothing": Case([], HOUR, [0], 0),
    "no limit": Case([OLD] * 20, {"retention.ms": "-1"}, [0, 10], 0),
    "at once": Case([OLD] * 20, {"retention.ms": "0"}, [20], 20),
    "when it came counts": Case([OLD] * 20, HOUR | {"message.timestamp.type": "LogAppendTime"}, [0, 10], 0),
    "size": Case([NEW] * 40, HOUR | {"retention.bytes": f"{2 * MIB}"}, [10, 20, 30], 10),
    "size, to nothing": Case([NEW] * 25, HOUR | {"retention.bytes": "0"}, [25], 25),
    "the log's start": Case([NEW] * 40, {"retention.ms": "-1"}, [20, 30], 25, trimmed=25),
    "all below the log's start": Case([NEW] * 25, {"retention.ms": "-1"}, [20], 25, trimmed=25),
    "compacted": Case([OLD] * 40, COMPACT | HOUR, [0, 10, 20, 30], 0),
    "compacted, below the log's start": Case([OLD] * 40, {"retention.ms": "-1"}, [20, 30], 25, 25, COMPACT | HOUR),
    "compacted and deleted": Case([OLD] * 20 + [NEW], COMPACT | HOUR | {"cleanup.policy": "compact,delete"}, [20], 20),
    "time rolls": Case([-500 * number for number in range(8)], {"segment.ms": "1000"}, [0, 3, 6], 0),
    "time that goes back rolls nothing": Case([500 * number for number in range(8)], {"segment.ms": "1000"}, [0], 0),
    "a full index rolls": Case(
        [NEW] * 9,
        {"segment.index.bytes": "24", "index.interval.bytes": "0", "segment.bytes": f"{9 * MIB}"},
        [0, 2, 4, 6, 8],
        0,
    ),
}


class Running(NamedTuple):
    """A broker with all cases played, and what its last retention left of each."""

    address: str
    folder: Path
    topics: Mapping[str, str]


@pytest.fixture(scope="module", params=BROKERS)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("retention")
    with broker(request.param, folder, SETTINGS) as address, Cluster(ClientConfig(address)) as cluster:
        topics = {text: f"case-{number}" for number, text in enumerate(CASES)}
        for text, name in topics.items():
            play(cluster, name, CASES[text])
        # Records written later are deleted later on the same broker, so that what is there then stays.
        for number in range(2):
            play(cluster, f"last-{number}", CASES["at once"], partitions := len(cluster.metadata.brokers))
            until(lambda name=f"last-{number}": starts_of(cluster, name, partitions) == {20})  # type: ignore[misc]
        yield Running(address, folder, topics)


def play(cluster: Cluster, name: str, case: Case, partitions: int = 1) -> None:
    configs = {"segment.bytes": str(MIB)} | ANY_TIME | dict(case.configs)
    retention = {key: configs.pop(key) for key in ("retention.ms", "retention.bytes") if key in configs}
    admin.create_topics(cluster, [admin.NewTopic(name, partitions, 1, configs | {"retention.ms": "-1"})])
    cluster.topic(name)
    write(cluster, name, case.ages, partitions)
    partition = TopicPartition(TopicName(name), 0)
    if case.trimmed:
        assert delete_records(cluster, {partition: case.trimmed}) == {partition: case.trimmed}
    alter(cluster, name, retention | dict(case.altered))


def write(cluster: Cluster, name: str, ages: Sequence[int], partitions: int = 1) -> None:
    """Write a batch for each record, the same to each partition."""
    now = time.time_ns() // 1_000_000
    for number, age in enumerate(ages):
        batch = encode_batch([(b"%d" % number, VALUE, (), now - age)])
        produce(cluster, {TopicPartition(TopicName(name), one): batch for one in range(partitions)})


def alter(cluster: Cluster, name: str, configs: Mapping[str, str]) -> None:
    """Alter the configuration once everything is written, so that no retention runs before."""
    changes = [AlterableConfig(name=key, config_operation=SET, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (response,) = cluster.controller().call(request, IncrementalAlterConfigsResponse).responses
    assert response.error_code == ErrorCode.NONE, response.error_message


def start_of(cluster: Cluster, name: str) -> int:
    partition = TopicPartition(TopicName(name), 0)
    return list_offsets(cluster, {partition: EARLIEST})[partition].offset


def starts_of(cluster: Cluster, name: str, partitions: int) -> set[int]:
    """Return the log starts of all partitions."""
    specs = {TopicPartition(TopicName(name), one): EARLIEST for one in range(partitions)}
    return {found.offset for found in list_offsets(cluster, specs).values()}


def left_of(running: Running, name: str) -> list[int]:
    data, files = running.folder / "data", f"{name}-0/*.log"
    return sorted(int(path.stem) for path in [*data.glob(files), *data.glob(f"broker*/{files}")])


@pytest.mark.parametrize("text", CASES)
def test_retention_leaves_the_expected_segments(played: Running, text: str) -> None:
    case, name = CASES[text], played.topics[text]
    with Cluster(ClientConfig(played.address)) as cluster:
        deadline = time.monotonic() + FILES_SECONDS_MAX
        while left_of(played, name) != case.left:
            assert time.monotonic() < deadline, left_of(played, name)
            time.sleep(0.05)
        assert start_of(cluster, name) == case.start
