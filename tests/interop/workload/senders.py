"""Idempotent producers that send a few values at a time."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from checker.history import Kind, Offset, Outcome, Send, Value
from workload.settings import CALL_SECONDS_MAX
from workload.worker import Setting, Worker

SENDS_MAX = 4


class Deliveries:
    """The acknowledged offsets and the errors of a producer that one thread uses."""

    def __init__(self) -> None:
        self.delivered: dict[Value, Offset | None] = {}  # Offset; None for a duplicate of an unknown batch.
        self.errors: set[str] = set()

    def send(self, producer: Producer, sends: Sequence[Send]) -> None:
        for send in sends:
            topic, _, partition = send.key.rpartition("/")
            value = str(send.value).encode()
            producer.produce(topic, value, partition=int(partition), on_delivery=self._on_delivery)

    def answered(self, sends: Sequence[Send]) -> list[Send]:
        return [Send(send.key, send.value, self.delivered.get(send.value)) for send in sends]

    def has_all(self, sends: Sequence[Send]) -> bool:
        return all(send.value in self.delivered for send in sends)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value, offset = message.value(), message.offset()
        assert value is not None
        if error is not None:
            self.errors.add(error.name())
        else:
            self.delivered[int(value)] = offset if offset is not None and offset >= 0 else None


def error_of(failed: KafkaException | SystemError) -> KafkaError:
    """Return the error; a fatal one raised in a delivery callback is wrapped in a SystemError."""
    if isinstance(failed, SystemError):
        if not isinstance(failed.__cause__, KafkaException):
            raise failed
        failed = failed.__cause__
    error: KafkaError = failed.args[0]
    return error


class Sender(Worker):
    def __init__(self, setting: Setting, process: int, seed: int) -> None:
        super().__init__(setting, process, seed)
        self._deliveries = Deliveries()

    def open(self) -> None:
        self._producer = Producer(self.setting.clients.producer())

    def work(self) -> None:
        planned = self.plan(SENDS_MAX)
        self.setting.recorder.invoke(self.process, Kind.SEND, *planned)
        self._deliveries.errors.clear()
        try:
            self._deliveries.send(self._producer, planned)
            self._producer.flush(CALL_SECONDS_MAX)
        except (KafkaException, SystemError) as failed:  # The producer cannot send any more.
            self._deliveries.errors.add(error_of(failed).name())
            self._producer.purge()
            self.open()
        outcome = Outcome.OK if self._deliveries.has_all(planned) else Outcome.INFO
        answered = self._deliveries.answered(planned)
        self.setting.recorder.complete(self.process, outcome, [*answered], " ".join(sorted(self._deliveries.errors)))

    def close(self) -> None:
        self._producer.flush(CALL_SECONDS_MAX)
