"""All clients known to the tests, by their names in docs/CLIENTS.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from _pytest.mark import ParameterSet
from kafka_peer import missing

from clients import golang, javascript, kcat
from clients.aio_kafka import AioKafka
from clients.client import Administrator, Client, Transactional
from clients.java import JavaClient
from clients.kafka_python import KafkaPython
from clients.librdkafka import Librdkafka
from clients.members import Way

JAVA_NEW, JAVA_OLD = "4.4.0", "2.1.1"


def java_new(address: str) -> JavaClient:
    return JavaClient(address, JAVA_NEW, "Client4", ("earliest", "latest", "max timestamp"))


def java_old(address: str) -> JavaClient:
    return JavaClient(address, JAVA_OLD, "Client2", ("earliest", "latest"))


ADMINISTRATORS: dict[str, Callable[[str], Administrator]] = {
    "confluent-kafka": Librdkafka,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    f"java-{JAVA_NEW}": java_new,
    f"java-{JAVA_OLD}": java_old,
    "franz-go": golang.FranzGo,
    "sarama": golang.Sarama,
    "kafka-go": golang.KafkaGo,
    "kafkajs": javascript.KafkaJs,
}
CLIENTS: dict[str, Callable[[str], Client]] = {**ADMINISTRATORS, "kcat": kcat.Kcat}

# Their kinds of group membership.
WAYS: dict[str, tuple[Way, ...]] = {
    "confluent-kafka": ("range", "cooperative-sticky", "consumer"),
    "kafka-python": ("range", "cooperative-sticky"),
    "aiokafka": ("range", "roundrobin"),
    "kcat": ("range", "cooperative-sticky"),
    f"java-{JAVA_NEW}": ("range", "cooperative-sticky", "consumer"),
    f"java-{JAVA_OLD}": ("range",),
    "franz-go": ("range", "cooperative-sticky", "consumer"),
    "sarama": ("range", "cooperative-sticky"),
    "kafka-go": ("range",),
    "kafkajs": ("roundrobin",),
}
WITHOUT_INSTANCES = frozenset((f"java-{JAVA_OLD}", "kafka-go", "kafkajs"))  # No group.instance.id.
NEVER_IDEMPOTENT = frozenset(("kafka-go",))
WITHOUT_TRANSACTIONS = frozenset(("kcat", "kafka-go"))
assert WAYS.keys() == CLIENTS.keys()


def lacks(name: str) -> str | None:
    """Return the reason why this client cannot run, or None."""
    if name == "kcat":
        return None if kcat.available else "needs kcat (the Debian package)"
    if name.startswith("java-"):
        return missing(f"kafka-clients-{name.removeprefix('java-')}")
    if name in ("franz-go", "sarama", "kafka-go"):
        return golang.missing
    if name == "kafkajs":
        return javascript.missing
    return None


def parameter(name: str) -> ParameterSet:
    """Return the name as a test parameter, which is skipped if the client cannot run."""
    reason = lacks(name)
    marks = [pytest.mark.skipif(reason is not None, reason=reason or "")]
    return pytest.param(name, marks=[*marks, pytest.mark.java] if name.startswith("java-") else marks)


class Opened:
    """The clients of one broker, each started on first use."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._clients: dict[str, Client] = {}

    def __getitem__(self, name: str) -> Client:
        if name not in self._clients:
            self._clients[name] = CLIENTS[name](self.address)
        return self._clients[name]

    def administrator(self, name: str) -> Administrator:
        assert name in ADMINISTRATORS
        return self[name]  # type: ignore[return-value]  # CLIENTS holds them too.

    def transactional(self, name: str) -> Transactional:
        assert name not in WITHOUT_TRANSACTIONS
        return self[name]  # type: ignore[return-value]  # All the others have them.

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
