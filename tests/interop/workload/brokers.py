"""The brokers under test: Odradek in its own process, or an Apache Kafka, to be killed and restarted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs leave them out.
from kafka_peer import REAL_KAFKA, KafkaBroker

from support.serving import Serving, serving
from workload.settings import BROKER_SETTINGS

# The same tests on a real Kafka verify their expectations; with --soak.
BROKERS = ["odradek", pytest.param("apache-kafka", marks=[*REAL_KAFKA, pytest.mark.soak])]
CREATE_SECONDS_MAX = 60
# A restarted broker must not count as a second one with the same id.
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
    """Create topics by name, with these numbers of partitions and min.insync.replicas one below the replicas."""
    configs = {"min.insync.replicas": str(max(1, replicas - 1))}
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for made in admin.create_topics(
        [NewTopic(name, count, replicas, config=configs) for name, count in topics.items()]
    ).values():
        made.result(CREATE_SECONDS_MAX)
