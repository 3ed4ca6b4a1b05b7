"""Three brokers of one command, with three replicas: acknowledged records outlive their leaders."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.base.errors import ErrorCode
from support.configuring import BROKER, SET, altered
from support.raw_client import RawClient
from support.serving_cluster import ServingCluster
from support.waiting import SECONDS_MAX, until

TOPIC, PARTITIONS, BROKERS = "flights", 3, [1, 2, 3]


def admin_of(cluster: ServingCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})


def leaders_and_isrs(admin: AdminClient) -> list[tuple[int, list[int]]]:
    topic = admin.list_topics(TOPIC, timeout=SECONDS_MAX).topics[TOPIC]
    return [(partition.leader, sorted(partition.isrs)) for _, partition in sorted(topic.partitions.items())]


def produced(cluster: ServingCluster, first: int, count: int, topic: str = TOPIC) -> None:
    producer = Producer({"bootstrap.servers": cluster.address, "enable.idempotence": True, "log_level": 0})
    failures = []
    for number in range(first, first + count):
        producer.produce(
            topic,
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
    """Return the records of each partition."""
    return {
        f"{TOPIC}-{index}": (folder / f"{TOPIC}-{index}" / "00000000000000000000.log").read_bytes()
        for index in range(PARTITIONS)
    }


def are_equal(folder: Path) -> bool:
    """Return whether all replicas are equal, byte for byte."""
    first, *others = (logs(folder / "data" / f"broker{broker}") for broker in BROKERS)
    return all(other == first for other in others)


def known_by_all(cluster: ServingCluster) -> bool:
    """Return whether each broker knows the leaders of all partitions."""
    for broker in BROKERS:
        known = AdminClient({"bootstrap.servers": cluster.address_of(broker), "log_level": 0})
        topic = known.list_topics(timeout=SECONDS_MAX).topics.get(TOPIC)
        if topic is None or [one.leader > 0 for one in topic.partitions.values()] != [True] * PARTITIONS:
            return False
    return True


def test_each_broker_may_be_killed_or_paused(tmp_path: Path) -> None:
    """A killed broker restarts at once; a paused one resumes after the others have removed it from the ISR."""
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
        until(lambda: are_equal(tmp_path))  # The reporting broker may have been paused itself, and know an old ISR.
        assert "Traceback" not in cluster.errors()


def connections(pid: int, port: int) -> int:
    """Return the number of a process's connections to a port."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            sockets.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, _, remote, state, *_, inode = line.split()[:10]
            found += remote.endswith(f":{port:04X}") and state == "01" and inode in sockets
    return found


def test_the_number_of_fetchers_changes_under_load(tmp_path: Path) -> None:
    """num.replica.fetchers changes for all brokers, and for one, while records arrive."""
    with ServingCluster(tmp_path) as cluster:
        admin = admin_of(cluster)
        assignment = [[1, 2, 3]] * PARTITIONS
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment)])[TOPIC].result(SECONDS_MAX)
        until(lambda: known_by_all(cluster))
        produced(cluster, 0, 3000)
        count = 3000
        before = {broker: connections(cluster.pids()[broker], cluster.port) for broker in (2, 3)}
        changes = (
            ("", "2", 1, 1),
            ("", "3", 2, 2),
            ("2", "5", 2, 2),
            ("2", "3", 2, 2),
            ("", "2", 2, 1),
            ("2", "2", 1, 1),
        )
        with ThreadPoolExecutor() as threads, RawClient(cluster.port + 1) as client:
            for broker, fetchers, more_at_2, more_at_3 in changes:
                load = threads.submit(produced, cluster, count, 3000)
                count += 3000
                assert altered(client, BROKER, broker, ("num.replica.fetchers", SET, fetchers)) == (ErrorCode.NONE, "")
                load.result(SECONDS_MAX)
                expected = {2: before[2] + more_at_2, 3: before[3] + more_at_3}
                until(
                    lambda: {one: connections(cluster.pids()[one], cluster.port) for one in (2, 3)} == expected  # noqa: B023
                )
        until(lambda: [isr for _, isr in leaders_and_isrs(admin)] == [BROKERS] * PARTITIONS)
        until(lambda: are_equal(tmp_path))
        assert sorted(consumed(cluster, count)) == [*range(count)], "nothing is lost, nothing comes twice"
        assert "Traceback" not in cluster.errors()
