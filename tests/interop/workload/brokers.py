"""The brokers under test: Odradek in a process of its own, or an Apache Kafka, each to be killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs leave them out.
from kafka_peer import REAL_KAFKA, KafkaBroker

from support.serving import Serving, serving
from workload.settings import BROKER_SETTINGS

# The same tests on a real Kafka say whether they ask for what Kafka promises; with --soak.
BROKERS = ["odradek", pytest.param("apache-kafka", marks=[*REAL_KAFKA, pytest.mark.soak])]
CREATE_SECONDS_MAX = 60
# A broker that comes back is not taken for a second one of the same number.
KAFKA_SETTINGS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}


@contextmanager
def broker(name: str, folder: Path) -> Iterator[Serving | KafkaBroker]:
    if name == "odradek":
        with serving(folder, **{key.replace(".", "_"): value for key, value in BROKER_SETTINGS.items()}) as running:
            yield running
            assert "Traceback" not in running.errors()
    else:
        with KafkaBroker(folder, settings=BROKER_SETTINGS | KAFKA_SETTINGS) as kafka:
            yield kafka


def create_topics(address: str, topics: dict[str, int], replicas: int = 1) -> None:
    """By name, with so many partitions; of several replicas all but one have to be in sync."""
    configs = {"min.insync.replicas": str(max(1, replicas - 1))}
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for made in admin.create_topics(
        [NewTopic(name, count, replicas, config=configs) for name, count in topics.items()]
    ).values():
        made.result(CREATE_SECONDS_MAX)
