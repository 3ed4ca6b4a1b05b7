"""Settings of the clients: short timeouts, so that they survive many crashes of their broker in a short time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TRANSACTION_SECONDS = 6.0
MESSAGE_SECONDS = 5.0  # The time during which records of a transaction are resent.
# Other records: if one times out, librdkafka resends those of all partitions in another epoch, even written ones.
PATIENCE_SECONDS = 300.0
CALL_SECONDS_MAX = 5.0  # The timeout of a call that the library bounds.
SESSION_SECONDS = 3.0

Config = dict[str, str | int | float | bool]

# For the broker: it permits the clients' short sessions, and open transactions end soon.
STATE_REPLICAS = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
BROKER_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


GroupProtocol = Literal["classic", "consumer"]
PROTOCOLS: tuple[GroupProtocol, ...] = ("classic", "consumer")


@dataclass(frozen=True, slots=True)
class Clients:
    """Common settings of a broker's clients."""

    address: str
    in_flight: int = 5  # Requests of a producer. Kafka 0.11 remembers one batch; more could be written twice.

    def common(self) -> Config:
        return {
            "bootstrap.servers": self.address,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 200,
            "socket.timeout.ms": 5000,
            # A produce timeout does not refresh the metadata: until then, records go to a deposed leader.
            "topic.metadata.refresh.interval.ms": 1000,
        }

    def producer(self, transactional_id: str | None = None) -> Config:
        idempotent: Config = {
            "enable.idempotence": True,
            "linger.ms": 0,
            "max.in.flight.requests.per.connection": self.in_flight,
            "message.timeout.ms": int(MESSAGE_SECONDS * 1000),
            "request.timeout.ms": 3000,
        }
        if transactional_id is None:
            return self.common() | idempotent | {"message.timeout.ms": int(PATIENCE_SECONDS * 1000)}
        transactions: Config = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
        }
        return self.common() | idempotent | transactions

    def consumer(self) -> Config:
        """Return the settings of a self-assigned consumer; librdkafka requires a group id nevertheless."""
        return self.common() | {
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
        }

    def member(self, group: str, protocol: GroupProtocol) -> Config:
        subscribed: Config = {"group.id": group, "group.protocol": protocol}
        if protocol == "classic":
            subscribed |= {"session.timeout.ms": int(SESSION_SECONDS * 1000), "heartbeat.interval.ms": 500}
        return self.consumer() | subscribed
