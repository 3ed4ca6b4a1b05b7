"""Three brokers by one command, with three replicas: what was acknowledged outlives whoever led it."""

from __future__ import annotations

import signal
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from support.serving_cluster import ServingCluster
from support.waiting import SECONDS_MAX, until

TOPIC, PARTITIONS, BROKERS = "flights", 3, [1, 2, 3]


def admin_of(cluster: ServingCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})


def leaders_and_isrs(admin: AdminClient) -> list[tuple[int, list[int]]]:
    topic = admin.list_topics(TOPIC, timeout=SECONDS_MAX).topics[TOPIC]
    return [(partition.leader, sorted(partition.isrs)) for _, partition in sorted(topic.partitions.items())]


def produced(cluster: ServingCluster, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.address, "enable.idempotence": True, "log_level": 0})
    failures = []
    for number in range(first, first + count):
        producer.produce(
            TOPIC,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not failures


def consumed(cluster: ServingCluster, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": "all", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        found.append(int(message.value() or b""))
    consumer.close()
    return found


def logs(folder: Path) -> dict[str, bytes]:
    """The records of each partition."""
    return {
        f"{TOPIC}-{index}": (folder / f"{TOPIC}-{index}" / "00000000000000000000.log").read_bytes()
        for index in range(PARTITIONS)
    }


def test_each_broker_may_die(tmp_path: Path) -> None:
    """Killed, and started again at once; and one that is paused until the others go on without it."""
    with ServingCluster(tmp_path) as cluster:
        admin = admin_of(cluster)
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(SECONDS_MAX)
        produced(cluster, 0, 300)
        assert [isr for _, isr in leaders_and_isrs(admin)] == [BROKERS] * PARTITIONS
        count = 300
        for victim in BROKERS:
            cluster.kill(victim)
            produced(cluster, count, 300)
            count += 300
            until(lambda: [isr for _, isr in leaders_and_isrs(admin)] == [BROKERS] * PARTITIONS)
        paused, _ = leaders_and_isrs(admin)[0]
        cluster.signal(paused, signal.SIGSTOP)
        produced(cluster, count, 300)
        count += 300
        cluster.signal(paused, signal.SIGCONT)
        until(lambda: [isr for _, isr in leaders_and_isrs(admin)] == [BROKERS] * PARTITIONS)
        assert sorted(consumed(cluster, count)) == list(range(count))
        data = [logs(tmp_path / "data" / f"broker{broker}") for broker in BROKERS]
        assert data[0] == data[1] == data[2], "replicas are equal, byte for byte"
        assert "Traceback" not in cluster.errors()
