"""Three brokers of one command: groups and transactions continue when their coordinator is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from test_replication import PARTITIONS, produced

from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.raw_client import RawClient
from support.serving_cluster import ServingCluster
from support.waiting import SECONDS_MAX, until

GROUP, TRANSACTION = 0, 1  # Kinds of coordinators.
BROKERS = {1, 2, 3}
SOURCE, TARGET = "orders", "bills"
FEW = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
QUICK = {**FEW, "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "2000"}


def coordinator(cluster: ServingCluster, key: str, kind: int, broker: int = 1) -> int:
    """Return the coordinator of a group or a transactional id as one of the brokers knows it, or -1."""
    with RawClient(cluster.port + broker - 1) as client:
        return client.request(FindCoordinatorRequest(key=key, key_type=kind), 3, FindCoordinatorResponse).node_id


def until_coordinated(cluster: ServingCluster, key: str, kind: int, broker: int = 1) -> int:
    until(lambda: coordinator(cluster, key, kind, broker) in BROKERS)
    return coordinator(cluster, key, kind, broker)


@contextmanager
def killed(cluster: ServingCluster, broker: int) -> Iterator[None]:
    """Kill a broker, and start it again at the end of the `with`; return when it is ready."""
    ready = len(cluster.lines)
    cluster.signal_first(signal.SIGSTOP)
    try:
        cluster.signal(broker, signal.SIGKILL)
        yield
    finally:
        cluster.signal_first(signal.SIGCONT)
    until(lambda: len(cluster.lines) > ready)


def create(cluster: ServingCluster, *topics: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    made = admin.create_topics([NewTopic(one, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for one in topics])
    for one in made.values():
        one.result(SECONDS_MAX)
    return admin


def consumer(cluster: ServingCluster, group: str, topic: str = SOURCE) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": cluster.address,
            "group.id": group,
            "session.timeout.ms": 10_000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    made.subscribe([topic])
    return made


def take(reader: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def is_enough() -> bool:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        return len(found) >= count

    until(is_enough)
    return found


def committed(cluster: ServingCluster, group: str) -> list[int]:
    reader = Consumer({"bootstrap.servers": cluster.address, "group.id": group, "log_level": 0})
    try:
        partitions = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
        return [one.offset for one in reader.committed(partitions, SECONDS_MAX)]
    finally:
        reader.close()


def test_a_group_resumes_at_its_committed_offsets(tmp_path: Path) -> None:
    with ServingCluster(tmp_path, configs=QUICK) as cluster:
        admin = create(cluster, SOURCE)
        reader = consumer(cluster, "g")
        produced(cluster, 0, 60, SOURCE)
        found = take(reader, 60)
        reader.commit(asynchronous=False)
        lost = until_coordinated(cluster, "g", GROUP)
        state = admin.list_topics(timeout=SECONDS_MAX).topics["__consumer_offsets"].partitions
        assert [set(one.replicas) for one in state.values()] == [BROKERS] * len(state)
        before = committed(cluster, "g")
        assert sum(before) == 60
        with killed(cluster, lost):
            other = next(iter(BROKERS - {lost}))
            until(lambda: coordinator(cluster, "g", GROUP, other) not in {lost, -1})
            assert committed(cluster, "g") == before
            produced(cluster, 60, 60, SOURCE)
            found += take(reader, 60)
            reader.commit(asynchronous=False)
            assert sum(committed(cluster, "g")) == 120
        assert sum(committed(cluster, "g")) == 120
        reader.close()
        assert sorted(map(int, found)) == list(range(120))
        assert "Traceback" not in cluster.errors()


def transformed(cluster: ServingCluster, producer: Producer, reader: Consumer, count: int, *, ends: bool) -> None:
    """Copy read records to the other topic in one transaction, with their offsets."""
    producer.begin_transaction()
    for value in take(reader, count):
        producer.produce(TARGET, value, partition=int(value) % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0
    positions = [one for one in reader.position(reader.assignment()) if one.offset >= 0]
    producer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), SECONDS_MAX)
    if ends:
        commit(producer)


def transactional(cluster: ServingCluster) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.address, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    return producer


def commit(producer: Producer) -> None:
    def is_committed() -> bool:
        try:
            producer.commit_transaction(SECONDS_MAX)
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise
            return False
        return True

    until(is_committed)


def test_a_new_coordinator_completes_a_transaction_once(tmp_path: Path) -> None:
    with ServingCluster(tmp_path, configs=QUICK) as cluster:
        create(cluster, SOURCE, TARGET)
        produced(cluster, 0, 240, SOURCE)
        reader = consumer(cluster, "g")
        producer = transactional(cluster)
        for key, kind in (("t", TRANSACTION), ("g", GROUP)):
            transformed(cluster, producer, reader, 40, ends=True)
            transformed(cluster, producer, reader, 40, ends=False)
            with killed(cluster, until_coordinated(cluster, key, kind)):
                commit(producer)
                # librdkafka 2.16 would wait for ever for the group's coordinator that it knows, if that has left the
                # metadata since: its handle ends, and what waits for it does not hear of that.
                producer = transactional(cluster)
                transformed(cluster, producer, reader, 40, ends=True)
        assert sum(committed(cluster, "g")) == 240
        reader.close()
        last = consumer(cluster, "of bills", TARGET)
        assert sorted(map(int, take(last, 240))) == list(range(240))
        assert last.poll(1) is None
        last.close()
        assert "Traceback" not in cluster.errors()
