"""What the modules about clients make their fixtures of: a broker, and the clients on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs leave them out.
from kafka_peer import REAL_KAFKA, KafkaBroker

from clients.client import SECONDS_MAX
from clients.members import HEARTBEAT_MS
from clients.registry import Opened
from support.serving import Serving
from support.serving_cluster import ServingCluster

# The same tests on a real Kafka say whether they ask for what Kafka does; with --soak.
BROKERS = [
    "odradek",
    pytest.param("odradek-cluster", marks=pytest.mark.soak),  # Each topic lies on one of three, or on all of them.
    pytest.param("apache-kafka", marks=[*REAL_KAFKA, pytest.mark.soak]),
]

# A group does not wait for more members, and those of KIP-848 are told soon what has changed.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
}


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Opened]:
    with broker(name, folder) as address, closing(Opened(address)) as clients:
        yield clients


@contextmanager
def broker(name: str, folder: Path, settings: Mapping[str, str] = {}) -> Iterator[str]:
    if name == "odradek":
        with Serving(folder, **SETTINGS, **settings) as running:
            yield running.address
            assert "Traceback" not in running.errors()
    elif name == "odradek-cluster":
        with ServingCluster(folder, configs={**SETTINGS, **settings}) as cluster:
            yield cluster.address_of(1)
            assert "Traceback" not in cluster.errors()
    else:
        with KafkaBroker(folder, settings={**SETTINGS, **settings}) as running:
            yield running.address


def new_topic(address: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
    """Made by librdkafka, whichever client the test is about.  Its records stay, however old they say they are."""
    name = f"clients-{uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    settings = {"retention.ms": "-1", **(configs or {})}
    (made,) = admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values()
    made.result(SECONDS_MAX)
    return name
