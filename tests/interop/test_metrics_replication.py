"""Replication metrics of three brokers while one is paused and one is killed, and after both are back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from test_metrics import Scrape, labels_in

from odradek.app.metrics.metrics_replication_table import FETCHER_LAG
from support.serving_cluster import ServingCluster, free_ports
from support.waiting import SECONDS_MAX, until

BROKERS = {1, 2, 3}
MANAGER, TOPICS = "kafka_server_replica_manager_", "kafka_server_broker_topic_metrics_"
CONTROLLER = "kafka_controller_kafka_controller_"
UNCLEAN = "kafka_controller_controller_stats_unclean_leader_elections_total"


class Brokers:
    """Metrics of the brokers."""

    def __init__(self, tmp_path: Path) -> None:
        self._port = free_ports(3)
        configs = {
            "metrics.listener": f"127.0.0.1:{self._port}",
            "replica.lag.time.max.ms": "2000",
            "zookeeper.session.timeout.ms": "120000",  # A paused broker stays.
        }
        self.cluster = ServingCluster(tmp_path, configs=configs)

    def scrape(self, broker: int) -> Scrape:
        return Scrape(self._port + broker - 1)

    def now(self, broker: int, name: str, **labels: str) -> float:
        return self.scrape(broker).total(name, **labels)

    def until(self, broker: int, **expected: int) -> None:
        """Wait until the replica manager's metrics have these values."""
        until(lambda: {name: self.now(broker, MANAGER + name) for name in expected} == expected)


def produced(address: str, count: int, acks: str, topic: str = "orders") -> list[KafkaError]:
    """Produce records and return the errors."""
    failures: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": address, "acks": acks, "message.timeout.ms": 3_000, "log_level": 0})
    for number in range(count):
        producer.produce(
            topic,
            b"%d" % number,
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    return failures


@pytest.mark.timeout(600)
def test_replication_metrics_follow_lost_and_returning_replicas(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    with brokers.cluster as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
        controller = admin.list_topics(timeout=SECONDS_MAX).controller_id
        killed, paused = sorted(BROKERS - {controller})
        topics = [
            NewTopic(
                "orders", 1, replica_assignment=[[controller, killed, paused]], config={"min.insync.replicas": "2"}
            ),
            NewTopic(
                "risky", 1, replica_assignment=[[killed, paused]], config={"unclean.leader.election.enable": "true"}
            ),
            NewTopic("alone", 1, replica_assignment=[[killed]]),
        ]
        for made in admin.create_topics(topics).values():
            made.result(SECONDS_MAX)
        assert not produced(cluster.address, 100, "all")
        check_what_was_written(brokers, controller, {killed, paused})
        brokers.until(controller, under_replicated_partitions=0, at_min_isr_partition_count=0, leader_count=1)
        brokers.until(killed, partition_count=3, leader_count=2, at_min_isr_partition_count=1)

        cluster.signal(paused, signal.SIGSTOP)
        for topic in ("orders", "risky"):  # A replica with all records stays in sync.
            assert not produced(cluster.address, 1, "1", topic)
        brokers.until(
            controller, under_replicated_partitions=1, at_min_isr_partition_count=1, under_min_isr_partition_count=0
        )
        brokers.until(controller, isr_shrinks_total=1, isr_expands_total=0)
        brokers.until(killed, under_replicated_partitions=1, isr_shrinks_total=1)
        assert brokers.now(controller, "kafka_cluster_partition_under_replicated", topic="orders") == 1
        assert brokers.now(controller, "kafka_cluster_partition_in_sync_replicas_count", topic="orders") == 2
        assert brokers.now(controller, UNCLEAN) == brokers.now(controller, CONTROLLER + "offline_partitions_count") == 0

        cluster.signal_first(signal.SIGSTOP)  # The first process would restart it.
        try:
            cluster.signal(killed, signal.SIGKILL)
            brokers.until(controller, under_min_isr_partition_count=1, at_min_isr_partition_count=0)
            until(lambda: brokers.now(controller, CONTROLLER + "offline_partitions_count") == 1)
            until(lambda: brokers.now(controller, UNCLEAN) == 1)
            until(lambda: brokers.now(controller, CONTROLLER + "preferred_replica_imbalance_count") == 2)
            assert produced(cluster.address, 1, "all")
        finally:
            cluster.signal(paused, signal.SIGCONT)
            cluster.signal_first(signal.SIGCONT)

        brokers.until(controller, under_replicated_partitions=0, isr_expands_total=2, under_min_isr_partition_count=0)
        until(lambda: brokers.now(controller, CONTROLLER + "offline_partitions_count") == 0)
        brokers.until(paused, leader_count=1, under_replicated_partitions=0)
        assert brokers.now(controller, CONTROLLER + "preferred_replica_imbalance_count") == 1, "risky's"
        assert brokers.now(paused, CONTROLLER + "preferred_replica_imbalance_count") == 0, "the controller tells"
        assert not produced(cluster.address, 10, "all")
        seen = brokers.scrape(paused)
        assert seen.of(FETCHER_LAG.name, "client_id") == {f"ReplicaFetcherThread-0-{controller}": 0}
        assert seen.total("kafka_server_replica_fetcher_manager_failed_partitions_count") == 0
        until(lambda: f"risky-0 is now led by broker {paused}, which may lack committed records" in cluster.errors())
        assert "Traceback" not in cluster.errors()


def check_what_was_written(brokers: Brokers, leader: int, followers: set[int]) -> None:
    """Check that the leader counts produced records, and that leader and followers count fetched ones."""
    size = brokers.now(leader, "kafka_log_log_size", topic="orders")
    assert brokers.now(leader, TOPICS + "messages_in_total", topic="orders") == 100
    assert brokers.now(leader, TOPICS + "bytes_in_total", topic="orders") == size
    assert brokers.now(leader, TOPICS + "replication_bytes_out_total") == 2 * size
    assert brokers.now(leader, TOPICS + "replication_bytes_in_total") == 0
    for follower in followers:
        until(lambda follower=follower: brokers.now(follower, FETCHER_LAG.name, topic="orders") == 0)
        seen = brokers.scrape(follower)
        assert seen.total(TOPICS + "replication_bytes_in_total") == size
        assert seen.total(TOPICS + "messages_in_total", topic="orders") == 0
        assert seen.total(TOPICS + "bytes_in_total", topic="orders") == 0
        assert seen.total("kafka_server_replica_fetcher_manager_max_lag") == 0
        assert labels_in(seen.text, FETCHER_LAG) == set(FETCHER_LAG.labels)
