"""A damaged Odradek leader under an Apache Kafka controller: an undamaged replica leads, and the damage is repaired."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka_zookeeper import OLD_KAFKA, V3
from mixed_cluster import OURS, THEIRS, MixedCluster, mixed_cluster

from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

TOPIC = "t"
RECORDS, VALUE = 3_500, bytes(1_000)
FOLLOWERS = {"replica.lag.time.max.ms": "3000"}


def written(cluster: MixedCluster) -> None:
    failed: list[object] = []
    settings = {"bootstrap.servers": cluster.address, "acks": "all", "batch.size": "10000", "log_level": 0}
    producer = Producer(settings)
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d %s" % (number, VALUE), on_delivery=lambda error, _: failed.append(error))
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    assert not any(failed)


def segments(cluster: MixedCluster, number: int) -> list[Path]:
    return sorted((cluster.places[number].data / f"{TOPIC}-0").glob("*.log"))


def records(cluster: MixedCluster, number: int) -> bytes:
    return b"".join(path.read_bytes() for path in segments(cluster, number))


@pytest.mark.slow
def test_a_kafka_controller_elects_an_undamaged_replica(tmp_path: Path) -> None:
    with mixed_cluster(tmp_path, V3, (THEIRS, OURS, OURS), FOLLOWERS) as cluster:
        cluster.create(TOPIC, [[2, 1, 3]], segment_bytes="1048576")
        written(cluster)
        cluster.await_in_sync()
        assert len(segments(cluster, 2)) > 3
        before = records(cluster, 1)
        cluster.places[2].stop()
        damaged = segments(cluster, 2)[1]
        data = bytearray(damaged.read_bytes())
        data[len(data) // 2] ^= 0x40
        damaged.write_bytes(data)
        cluster.places[2].start()
        cluster.await_in_sync()
        cluster.elect_preferred()
        cluster.places[3].stop()
        cluster.places[3].empty()
        cluster.places[3].start()
        until(lambda: cluster.leaders(TOPIC) == [1])
        cluster.await_in_sync()
        assert cluster.controller() == 1
        until(lambda: records(cluster, 2) == records(cluster, 3) == before)
        assert "t-0: truncated to offset" in cluster.errors()
        assert "Traceback" not in cluster.errors()
