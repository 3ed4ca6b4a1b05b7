"""Read-committed consumers: one that assigns itself all keys, and members of a group."""

from __future__ import annotations

import time
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from checker.history import Kind, Reset, Step
from workload.settings import GroupProtocol
from workload.worker import Setting, Worker, add_records, add_reset

POLL_SECONDS = 0.2
RECORDS_MAX = 50
ASSIGNED_SECONDS = 4.0
MEMBER_SECONDS = 8.0


class AssignedReader(Worker):
    """A consumer that reads from the beginning, and after a while again from there or elsewhere."""

    def open(self) -> None:
        self._consumer = Consumer(self.setting.clients.consumer())
        self._assign(0)

    def work(self) -> None:
        if time.monotonic() > self._until:
            self._assign(self.random.choice([0, self.random.randrange(200)]))
        self.note(Kind.POLL, self._poll)

    def close(self) -> None:
        self._consumer.close()

    def _assign(self, offset: int) -> None:
        self._until = time.monotonic() + ASSIGNED_SECONDS

        def assign(steps: list[Step]) -> str:
            self._consumer.assign([partition.at(offset) for partition in self.setting.partitions])
            # Beyond the end, the client resets to the beginning itself.
            known = 0 if offset == 0 else None
            steps.append(Reset({partition.key: known for partition in self.setting.partitions}))
            return ""

        self.note(Kind.ASSIGN, assign)

    def _poll(self, steps: list[Step]) -> str:
        messages = self._consumer.consume(RECORDS_MAX, POLL_SECONDS)
        add_records(steps, [message for message in messages if message.error() is None])
        return error_of(messages)


class Member(Worker):
    """A consumer that subscribes, commits polled records, leaves after a while, and returns.

    It has one commit in flight: of librdkafka 2.16's automatic commits, several are in flight without a
    coordinator, and each is retried independently, so that an old one may be written after newer ones.
    """

    def __init__(self, setting: Setting, process: int, seed: int, protocol: GroupProtocol) -> None:
        super().__init__(setting, process, seed)
        self._protocol = protocol
        self._steps: list[Step] = []  # The steps of the current operation, which rebalances may interrupt.

    def open(self) -> None:
        self._consumer = Consumer(self.setting.clients.member(f"readers-{self._protocol}", self._protocol))
        self._until = time.monotonic() + self.random.uniform(1, 2) * MEMBER_SECONDS
        self.note(Kind.SUBSCRIBE, self._subscribe)

    def work(self) -> None:
        if time.monotonic() > self._until:
            self.close()
            self.open()
        self.note(Kind.POLL, self._poll)
        with suppress(KafkaException):  # Nothing new, or another owner: the next commit includes everything.
            self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._steps = []
        self._consumer.close()

    def _subscribe(self, steps: list[Step]) -> str:
        def moved(_: Consumer, partitions: list[TopicPartition]) -> None:
            add_reset(self._steps, partitions)

        self._consumer.subscribe(self.setting.topics, on_assign=moved, on_revoke=moved, on_lost=moved)
        add_reset(steps, [partition.at(0) for partition in self.setting.partitions])
        return ""

    def _poll(self, steps: list[Step]) -> str:
        self._steps = steps
        return poll_some(self._consumer, steps, RECORDS_MAX, POLL_SECONDS)


def poll_some(consumer: Consumer, steps: list[Step], most: int, seconds: float) -> str:
    """Poll records one by one, so that their order relative to a rebalance is known."""
    until = time.monotonic() + seconds
    for _ in range(most):
        try:
            message = consumer.poll(max(0.0, until - time.monotonic()))
        except KafkaException as error:
            return str(error.args[0].name())
        if message is None:
            return ""
        if message.error() is not None:
            return error_of([message])
        add_records(steps, [message])
    return ""


def error_of(messages: list[Message]) -> str:
    return next((error.name() for message in messages if (error := message.error()) is not None), "")
