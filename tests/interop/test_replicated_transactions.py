"""Three brokers of one command: every replica has the producers and the aborted transactions, in Kafka's files."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.base.units import Offset
from odradek.log.files.disk import RealDisk
from odradek.log.producers.snapshots import Snapshots
from support.serving_cluster import ServingCluster
from support.waiting import SECONDS_MAX, until

TOPIC, BROKERS = "flights", [1, 2, 3]
SMALL = {"internal.segment.bytes": "4000", "min.insync.replicas": "2"}
PRODUCERS = 3
State = tuple[int, int, int, int, int]


def test_replicas_have_the_same_transactions_in_their_files(tmp_path: Path) -> None:
    few = {"transaction.state.log.num.partitions": "3"}
    with ServingCluster(tmp_path, configs=few) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
        made = admin.create_topics([NewTopic(TOPIC, 1, 3, config=SMALL)])
        made[TOPIC].result(SECONDS_MAX)
        producers = [transactional(cluster, number) for number in range(PRODUCERS)]
        kept: list[int] = []
        for first in (0, 100):
            for number in range(first, first + 100, 5):
                ends_well = number // 5 % 3 != 0
                transaction(producers[number // 5 % PRODUCERS], range(number, number + 5), ends_well=ends_well)
                kept += range(number, number + 5) if ends_well else ()
            if first == 0:
                cluster.kill(admin.list_topics(TOPIC, timeout=SECONDS_MAX).topics[TOPIC].partitions[0].leader)
        assert consumed(cluster, len(kept)) == kept
        until(lambda: sorted(admin.list_topics(TOPIC, timeout=SECONDS_MAX).topics[TOPIC].partitions[0].isrs) == BROKERS)
        assert "Traceback" not in cluster.errors()
        assert cluster.stop() == 0
    folders = [tmp_path / "data" / f"broker{broker}" / f"{TOPIC}-0" for broker in BROKERS]
    assert all(len(list(folder.glob("*.log"))) > 2 for folder in folders), "all of them have rolled"
    for suffix in (".log", ".txnindex"):
        one, *others = [whole(folder, suffix) for folder in folders]
        assert one
        assert others == [one, one]
    one, *others = [producers_of(folder) for folder in folders]
    assert len(one) == PRODUCERS
    assert others == [one, one]
    for folder in folders:
        rolls = {path.stem for path in folder.glob("*.log")} - {f"{0:020}"}
        assert rolls <= {path.stem for path in folder.glob("*.snapshot")}


def transactional(cluster: ServingCluster, number: int) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.address, "transactional.id": f"t{number}", "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    return producer


def transaction(producer: Producer, numbers: range, *, ends_well: bool) -> None:
    producer.begin_transaction()
    for number in numbers:
        producer.produce(TOPIC, b"%100d" % number, partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    until(lambda: has_ended(producer, ends_well=ends_well))


def has_ended(producer: Producer, *, ends_well: bool) -> bool:
    try:
        (producer.commit_transaction if ends_well else producer.abort_transaction)(SECONDS_MAX)
    except KafkaException as failed:
        if not failed.args[0].retriable():
            raise
        return False
    return True


def consumed(cluster: ServingCluster, count: int) -> list[int]:
    """Return the committed records in order: at least `count`."""
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": "all", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[int] = []
    while (message := consumer.poll(SECONDS_MAX if len(found) < count else 1)) is not None:
        assert message.error() is None
        found.append(int(message.value() or b""))
    consumer.close()
    return found


def whole(folder: Path, suffix: str) -> bytes:
    """Return the files of all segments as one: replicas may roll at different offsets, as Kafka's do."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob(f"*{suffix}")))


def producers_of(folder: Path) -> list[State]:
    """Return the producers in the last snapshot, taken at the end of the log at the stop."""
    offsets = [Offset(int(path.stem)) for path in folder.glob("*.snapshot")]
    found, _ = Snapshots(RealDisk(), str(folder), offsets).newest(max(offsets))
    return sorted((one.id, one.epoch, one.last_sequence, one.coordinator_epoch, one.first_offset) for one in found)
