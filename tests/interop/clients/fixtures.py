"""Parts of the fixtures in the modules about clients: a broker, and its clients."""

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

# The same tests on a real Kafka verify their expectations; with --soak.
BROKERS = [
    "odradek",
    pytest.param("odradek-cluster", marks=pytest.mark.soak),  # A topic is on one of three brokers, or on all.
    pytest.param("apache-kafka", marks=[*REAL_KAFKA, pytest.mark.soak]),
]

# No initial rebalance delay, and short heartbeat intervals for KIP-848.
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
    """Create a topic with librdkafka, for tests of any client. Its records are kept regardless of their timestamps."""
    name = f"clients-{uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    settings = {"retention.ms": "-1", **(configs or {})}
    (made,) = admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values()
    made.result(SECONDS_MAX)
    return name
