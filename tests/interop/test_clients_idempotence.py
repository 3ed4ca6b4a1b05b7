"""Producers that lose responses and retry: idempotent ones write each record once, and in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest
from clients.client import BEGINNING
from clients.records import Record
from clients.registry import CLIENTS, NEVER_IDEMPOTENT, Opened, parameter

from odradek.testing import Broker

LOST = 2  # Responses.
VALUES = [b"%d" % number for number in range(50)]
RECORDS = [Record(b"key", value) for value in VALUES]
# It ends when its connection does.
NEVER_RETRIES = {"kcat"}
# These are idempotent unless they are told not to be.
BY_THEMSELVES = ["kafka-python", "java-4.4.0", "franz-go"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def clients(broker: Broker) -> Iterator[Opened]:
    with closing(Opened(broker.address)) as those:
        yield those


def written(broker: Broker, clients: Opened, name: str, idempotent: bool | None) -> list[bytes | None]:
    """Return the records in the log after two responses were lost."""
    topic = f"idempotence-{uuid4().hex[:12]}"
    broker.create_topic(topic, partitions=1)
    with broker.faults.drop("Produce", times=LOST, after=True, topic=topic) as fault:
        clients[name].produce(topic, "none", RECORDS, idempotent=idempotent)
        assert fault.count == LOST
    reader = clients.administrator("confluent-kafka")
    found = reader.consume(topic, BEGINNING, reader.list_offsets(topic, "latest"))
    return [one.record.value for one in found]


@pytest.mark.parametrize(
    "name", [parameter(name) for name in CLIENTS if name not in {*NEVER_IDEMPOTENT, *NEVER_RETRIES}]
)
def test_an_idempotent_producer_writes_each_record_once(broker: Broker, clients: Opened, name: str) -> None:
    assert written(broker, clients, name, idempotent=True) == VALUES


@pytest.mark.parametrize("name", [parameter(name) for name in BY_THEMSELVES])
def test_a_producer_with_default_settings_writes_each_record_once(broker: Broker, clients: Opened, name: str) -> None:
    assert written(broker, clients, name, idempotent=None) == VALUES


@pytest.mark.parametrize("name", [parameter(name) for name in CLIENTS if name not in NEVER_RETRIES])
def test_a_producer_without_idempotence_writes_duplicates(broker: Broker, clients: Opened, name: str) -> None:
    found = Counter(written(broker, clients, name, idempotent=False))
    assert found.keys() == set(VALUES)
    assert max(found.values()) > 1
