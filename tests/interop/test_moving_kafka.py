"""Data directories moved from Apache Kafka 3.9.1, 0.11.0.3 and 4.3.0 to Odradek, and back.

Clients compare all records before and after; state is requested, and then used.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ConfigResource
from contents import (
    CLASSIC,
    CLEANER,
    CODECS,
    IN_TRANSACTIONS,
    MODERN,
    MOST,
    NUMBERED,
    OPEN,
    SECONDS_MAX,
    SENDER,
    admin,
    await_compaction,
    configs_for,
    create_topics,
    fill,
    found,
    group_offsets,
    read,
    send,
    transactional,
    until,
)
from kafka_peer import REAL_KAFKA, VERSION
from kafka_zookeeper import OLD_KAFKA, V0, V3, OldKafka
from moved import Kafka, copy_under, dump_log_of, made

from odradek.base.units import ProducerEpoch, ProducerId
from odradek.coordination.zookeeper import open_zookeeper
from odradek.net.cluster.tree_metadata import Metadata
from odradek.record.builder import encode_batch
from odradek.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.golden import Found
from support.raw_client import RawClient
from support.serving import Serving

pytestmark = [*REAL_KAFKA, *OLD_KAFKA, pytest.mark.own_peer("exchanges directories with a running Apache Kafka")]

VERSIONS = (V3, V0, VERSION)
STATES = ("stopped", "killed")
# As for the brokers of the tests; and no compaction while two are compared.
OURS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
}
UNCLEANED = {"log.cleaner.enable": "false"}
OUT_OF_ORDER = 45
# Kafka's tool prints it for every gap of a compaction, that of 4.3.0 for a segment that does not begin at 0, too:
# for Kafka's own segments as well (test_compacted_kafka.py).
GAPS = re.compile(r"Non-consecutive offsets in .*/(\S+)-\d+/.*\n((?:  -?\d+ is followed by \d+\n)+)")
COMPLAINTS = re.compile(
    r"isvalid: false|mismatch|corrupt|out of order|Found|not found|error|exception|non-consecutive", re.IGNORECASE
)


class Left(NamedTuple):
    """Data of a stopped Kafka: its folders, by the kind of stop, and contents that clients found before."""

    kafka: Kafka
    version: str
    folders: dict[str, Path]
    before: Found


def copied(kafka: Kafka, folder: Path) -> Path:
    return Path(shutil.copytree(kafka.data, folder / "data"))


@pytest.fixture(scope="module", params=VERSIONS)
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    version, folder = request.param, tmp_path_factory.mktemp("kafka")
    is_modern = version == VERSION
    with made(folder, version, CLEANER) as kafka:
        create_topics(kafka.address, configs_for(version))
        opened = fill(kafka.address, codecs=CODECS[:4] if version == V0 else CODECS, modern_group=is_modern)
        await_compaction(kafka.data, kafka.address)
        before = found(kafka.address, modern_group=is_modern)
        del opened
        kafka.stop()
        folders = {"stopped": copied(kafka, folder / "stopped")}
        kafka.start()
        kafka.kill()
        folders["killed"] = copied(kafka, folder / "killed")
        yield Left(kafka, version, folders, before)


@pytest.mark.parametrize("state", STATES)
def test_all_contents_are_served_and_writable(left: Left, state: str) -> None:
    is_modern = left.version == VERSION
    with Serving(left.folders[state].parent, **OURS) as ours:
        assert found(ours.address, modern_group=is_modern) == left.before
        check_configs(ours, is_known=is_modern)
        check_transactions(ours.port)
        check_sequences(ours.port)
        go_on(ours.address)
        now = found(ours.address, modern_group=is_modern)
        ours.kill()
        ours.start()
        assert found(ours.address, modern_group=is_modern) == now
        errors = ours.errors()
    assert len(now.committed["transactions-0"]) == len(left.before.committed["transactions-0"]) + 2
    assert ("retention.ms=-1" in errors, "has compacted" in errors) == (not is_modern, not is_modern)
    assert " ERROR " not in errors


def check_configs(ours: Serving, *, is_known: bool) -> None:
    """Check that configurations are kept if they are known; otherwise nothing is deleted."""
    expected = configs_for(VERSION)
    client = admin(ours.address)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in expected]
    for resource, future in client.describe_configs(resources).items():
        described = {name: entry.value for name, entry in future.result(SECONDS_MAX).items()}
        configs = expected[resource.name][1]
        if not is_known:
            configs = {"cleanup.policy": "delete", "retention.ms": "-1"}
        assert {name: described[name] for name in configs} == configs, resource.name


def check_transactions(port: int) -> None:
    with RawClient(port) as client:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        listed = client.request(request, 0, ListTransactionsResponse).transaction_states
        states = {one.transactional_id: one.transaction_state for one in listed}
        assert states == {SENDER: "CompleteCommit", OPEN: "Ongoing"}
        describe = DescribeTransactionsRequest(transactional_ids=[OPEN])
        (transaction,) = client.request(describe, 0, DescribeTransactionsResponse).transaction_states
        assert {topic.topic: topic.partitions for topic in transaction.topics} == {
            "transactions": [0],
            "__consumer_offsets": [0],
        }


def check_sequences(port: int) -> None:
    """Check that the idempotent producer's next batch fits, a repeated one is known, and a gap is refused."""
    with RawClient(port) as client:
        request = DescribeProducersRequest(topics=[TopicRequest(name="segments", partition_indexes=[0])])
        (part,) = client.request(request, 0, DescribeProducersResponse).topics[0].partitions
        (known,) = part.active_producers
        assert known.last_sequence == NUMBERED - 1
        answers = [produced(client, ProducerId(known.producer_id), NUMBERED + step) for step in (-1, 0, 0, 2)]
    assert answers == [(0, NUMBERED - 1), (0, NUMBERED), (0, NUMBERED), (OUT_OF_ORDER, -1)]


def produced(client: RawClient, producer: ProducerId, sequence: int) -> tuple[int, int]:
    now = time.time_ns() // 1_000_000
    records = [(None, b"on", (), now)]
    batch = encode_batch(records, producer_id=producer, producer_epoch=ProducerEpoch(0), base_sequence=sequence)
    data = TopicProduceData(name="segments", partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
    part = client.request(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 9, ProduceResponse).responses[
        0
    ]
    return part.partition_responses[0].error_code, part.partition_responses[0].base_offset


def go_on(address: str) -> None:
    """End the open transaction with its id, begin the next, commit offsets, and write to every topic."""
    producer = transactional(address, OPEN)
    assert group_offsets(address, IN_TRANSACTIONS) == {"segments-0": (15, "")}, "what was open committed nothing"
    producer.begin_transaction()
    producer.produce("transactions", b"next", partition=0)
    producer.commit_transaction(SECONDS_MAX)
    for topic, (count, _) in configs_for(VERSION).items():
        if topic != "transactions":
            send(address, topic, [(b"k1", b"and on", time.time_ns() // 1_000_000)], partitions=tuple(range(count)))


@pytest.mark.parametrize("left", [V3, V0], indirect=True)
def test_the_tree_of_kafka_is_read(left: Left) -> None:
    """An Odradek broker will find it in ZooKeeper, where a cluster before 4 keeps its metadata."""
    assert isinstance(left.kafka, OldKafka)
    tree = open_zookeeper(left.kafka.zookeeper_address)
    topics = Metadata(tree).topics()
    tree.close()
    expected = configs_for(left.version)
    assert {name: topic.configs for name, topic in topics.items() if name in expected} == {
        name: configs for name, (_, configs) in expected.items()
    }
    assert all(len(topics[name].partitions) == count for name, (count, _) in expected.items())  # type: ignore[index]
    assert topics["__consumer_offsets"].configs["cleanup.policy"] == "compact"  # type: ignore[index]


@pytest.mark.parametrize("left", [V3, VERSION], indirect=True)  # 0.11 does not know the present formats of state.
def test_kafka_serves_the_folder_that_odradek_continued(left: Left, tmp_path: Path) -> None:
    """A folder from Kafka that Odradek has written to is served by that Kafka, and by Odradek again."""
    is_modern = left.version == VERSION
    folder = left.folders["stopped"].parent
    with Serving(folder, **OURS) as ours:
        now = found(ours.address, modern_group=is_modern)
    left.kafka.stop()
    shutil.copytree(folder / "data", tmp_path / "data")
    zookeeper = left.kafka.zookeeper_address if isinstance(left.kafka, OldKafka) else None
    with made(tmp_path, left.version, UNCLEANED, zookeeper) as kafka:
        check_served(kafka, now, modern_group=is_modern)
        create_topics(kafka.address, {"made_there": (1, {})})
        now = found(kafka.address, modern_group=is_modern)
        kafka.stop()
    (tmp_path / "data" / "metadata.sqlite").unlink()  # It does not know topics created since.
    with Serving(tmp_path, **OURS) as ours:
        assert found(ours.address, modern_group=is_modern) == now
        assert "made_there" in admin(ours.address).list_topics().topics


def check_served(kafka: Kafka, before: Found, *, modern_group: bool) -> None:
    """Check that Kafka serves all of it, and accepts records."""
    assert found(kafka.address, modern_group=modern_group) == before
    producer = transactional(kafka.address, OPEN)
    producer.begin_transaction()
    producer.produce("transactions", b"in Kafka", partition=0)
    producer.commit_transaction(SECONDS_MAX)
    send(kafka.address, "segments", [(b"k1", b"in Kafka", time.time_ns() // 1_000_000)])
    until(lambda: all(read_last(kafka.address, topic) == b"in Kafka" for topic in ("transactions", "segments")))


def read_last(address: str, topic: str) -> bytes | None:
    """Return the last committed value; a transaction's is visible a moment after the response."""
    (records,) = read(address, [TopicPartition(topic, 0)], "read_committed").values()
    return records[-1][4]


@pytest.fixture(scope="module")
def ours_stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    """Return a folder written and compacted by Odradek, and its contents as found by clients."""
    folder = tmp_path_factory.mktemp("ours")
    with Serving(folder, **OURS | {"log.cleaner.enable": "true"} | CLEANER) as ours:
        create_topics(ours.address, configs_for(VERSION))
        opened = fill(ours.address, modern_group=True)
        await_compaction(folder / "data", ours.address)
        before = found(ours.address, modern_group=True)
        del opened
    return folder / "data", before


@pytest.mark.parametrize("version", [V3, VERSION])
def test_kafka_serves_our_folder(ours_stopped: tuple[Path, Found], tmp_path: Path, version: str) -> None:
    """The logs are copied to topics that Kafka created, and get their ids."""
    data, before = ours_stopped
    is_modern = version == VERSION
    if not is_modern:  # It ignores groups of the newer protocol.
        before = before._replace(
            offsets={name: committed for name, committed in before.offsets.items() if name != MODERN}
        )
    with made(tmp_path, version, UNCLEANED) as kafka:
        create_topics(kafka.address, configs_for(version))
        transactional(kafka.address, "makes the topic")
        group_offsets(kafka.address, CLASSIC)
        kafka.stop()
        copy_under(data, kafka.data)
        kafka.start()
        check_served(kafka, before, modern_group=is_modern)


@pytest.mark.parametrize("version", VERSIONS)
def test_dump_log_reads_all_our_files(ours_stopped: tuple[Path, Found], tmp_path: Path, version: str) -> None:
    data, before = ours_stopped
    paths = sorted(data.glob("*-*/*.*"))
    if version == V0:  # zstd and the present formats of state are newer than it is.
        newer = ("every.codec", "__consumer_offsets", "__transaction_state")
        paths = [path for path in paths if not path.parent.name.startswith(newer)]
    of = {kind: [path for path in paths if path.suffix == kind] for kind in (".log", ".index", ".timeindex")}
    logs = [path for path in of[".log"] if not path.parent.name.startswith("__")]
    text = dumped(version, tmp_path, logs, "--deep-iteration")
    expected = sum(map(len, before.records.values()))
    assert len(re.findall(r"^(?:\| )?offset: \d+", text, re.MULTILINE)) >= (expected if version != V0 else 100)
    indexes = [path for path in of[".index"] + of[".timeindex"] if path.stat().st_size]
    for options in ((), ("--index-sanity-check",), ("--verify-index-only",)):
        dumped(version, tmp_path, indexes, *options)
    snapshots = [path for path in paths if path.suffix in (".snapshot", ".txnindex") and path.stat().st_size]
    assert "producerId: " in dumped(version, tmp_path, snapshots)
    if version != V0:
        text = dumped(version, tmp_path, list(data.glob("__consumer_offsets-*/*.log")), "--offsets-decoder")
        assert all(group in text for group in before.offsets if group != MODERN or version == VERSION)
        text = dumped(version, tmp_path, list(data.glob("__transaction_state-*/*.log")), "--transaction-log-decoder")
        assert SENDER in text and OPEN in text


def dumped(version: str, folder: Path, paths: list[Path], *options: str) -> str:
    assert paths, "there is nothing to look at"
    text = dump_log_of(version, folder, *paths, options=options)
    text = GAPS.sub(lambda gap: "" if is_no_fault(gap) else gap[0], text)
    complaint = COMPLAINTS.search(text.replace("passed sanity check", ""))
    assert complaint is None, text[max(0, complaint.start() - 500) : complaint.end() + 500]
    return text


def is_no_fault(gap: re.Match[str]) -> bool:
    return gap[1] in MOST or re.fullmatch(r"  -1 is followed by \d+\n", gap[2]) is not None
