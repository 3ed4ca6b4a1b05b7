"""Transactions of polls and sends; in a group, their offsets are committed with them.

The outcome of a transaction is `fail` only if its producer knows of the abort. If the producer cannot know, another one
with its transactional id takes over, which ends any open transaction; the outcome stays unknown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from checker.history import Kind, Outcome, Poll, Reset, Send, Step
from workload.readers import poll_some
from workload.senders import Deliveries, error_of
from workload.settings import CALL_SECONDS_MAX, GroupProtocol
from workload.worker import PAUSE_SECONDS, Partition, Setting, Worker, add_reset

SENDS_MAX = 4
RECORDS_MAX = 20
POLL_SECONDS = 0.2
ABORTED_SHARE = 0.15
LEFT_OPEN_SHARE = 0.03
ZOMBIE_SECONDS_MAX = 2.0
MEMBER_SECONDS = 8.0


class Hung(Exception):
    """Raised for a call that did not return in time."""


class Transactor(Worker):
    """A transactional client that assigns itself all keys, and commits no offsets."""

    def __init__(self, setting: Setting, process: int, seed: int) -> None:
        super().__init__(setting, process, seed)
        self.group: str | None = None
        self._producer: Producer | None = None
        self._zombie: Producer | None = None  # The producer left its transaction open.
        self._deliveries = Deliveries()
        self._planned: list[Send] = []  # The sends of the transaction.
        self._steps: list[Step] = []  # What it has done.
        self._is_commit_requested = False
        self._must_rewind = False
        self._positions = {partition.key: 0 for partition in setting.partitions}

    def open(self) -> None:
        self._consumer = Consumer(self.setting.clients.consumer())
        self._rewind()

    def work(self) -> None:
        if self._producer is None:
            self._take_over()
        elif self._must_rewind:
            self._rewind()
        else:
            self._transaction(self._producer)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.flush(CALL_SECONDS_MAX)
        self._consumer.close()

    def rewind(self, steps: list[Step]) -> str:
        """Return to the positions before the uncommitted polls."""
        self._consumer.assign([_at(key, offset) for key, offset in self._positions.items()])
        steps.append(Reset(dict(self._positions)))
        return ""

    def send_offsets(self, producer: Producer) -> bool:
        """Add offsets to the transaction; return False if polled partitions have another owner."""
        return True

    def _rewind(self) -> None:
        self._must_rewind = True

        def rewind(steps: list[Step]) -> str:
            try:
                error = self.rewind(steps)
            except KafkaException as failed:
                return str(failed.args[0].name())
            self._must_rewind = bool(error)
            return error

        self.note(Kind.ASSIGN, rewind)

    def _take_over(self) -> None:
        """Replace a failed producer, or create the first one."""
        producer = Producer(self.setting.clients.producer(f"transactor-{self.process}"))
        try:
            producer.init_transactions(CALL_SECONDS_MAX)
        except KafkaException:
            time.sleep(PAUSE_SECONDS)
            return
        self._producer = producer
        if self._zombie is not None:
            with suppress(KafkaException):  # It is fenced; otherwise its records would become visible.
                self._zombie.commit_transaction(ZOMBIE_SECONDS_MAX)
            self._zombie = None

    def _transaction(self, producer: Producer) -> None:
        planned = self.plan(SENDS_MAX)
        self._planned, self._steps, self._is_commit_requested = planned, [], False
        self.setting.recorder.invoke(self.process, Kind.TXN, *planned, group=self.group)
        outcome, error = self._transact(producer, planned)
        steps = [*self._steps, *self._deliveries.answered(planned)]
        self.setting.recorder.complete(self.process, outcome, steps, error)
        if outcome is Outcome.OK:
            self._positions |= next_offsets(self._steps)
        else:
            self._must_rewind = True

    def _transact(self, producer: Producer, planned: list[Send]) -> tuple[Outcome, str]:
        try:
            producer.begin_transaction()
            poll_some(self._consumer, self._steps, RECORDS_MAX, POLL_SECONDS)
            self._deliveries.send(producer, planned)
            if not self.send_offsets(producer):
                return self._abort(producer, "rebalanced")
            chance = self.random.random()
            if chance < LEFT_OPEN_SHARE:
                producer.flush(CALL_SECONDS_MAX)
                self._producer, self._zombie = None, producer
                return Outcome.INFO, "left open"
            if chance < ABORTED_SHARE:
                return self._abort(producer, "on purpose")
            return self._commit(producer)
        except (KafkaException, SystemError) as failed:
            return self._failed(producer, error_of(failed))
        except Hung:
            self._producer = None
            return Outcome.INFO, "hung"

    def _commit(self, producer: Producer) -> tuple[Outcome, str]:
        producer.flush(CALL_SECONDS_MAX)
        self._is_commit_requested = True
        self.setting.recorder.commit(self.process)
        _twice(producer.commit_transaction)
        return Outcome.OK, ""

    def _failed(self, producer: Producer, error: KafkaError) -> tuple[Outcome, str]:
        if error.txn_requires_abort() or not (self._is_commit_requested or error.fatal()):
            return self._abort(producer, error.name())
        self._producer = None
        return Outcome.INFO, error.name()

    def _abort(self, producer: Producer, why: str) -> tuple[Outcome, str]:
        # librdkafka 2.16 discards batches that wait to be resent, which may be written already, and gives their
        # sequences to the next records without another epoch: a broker takes these for duplicates. Timed-out records
        # may be treated the same way.
        if producer.flush(CALL_SECONDS_MAX) or not self._deliveries.has_all(self._planned):
            self._producer = None
        try:
            _twice(producer.abort_transaction)
        except (KafkaException, SystemError) as failed:
            self._producer = None
            return Outcome.INFO, f"{why}, and {error_of(failed).name()} for the abort"
        return Outcome.FAIL, why


class GroupTransactor(Transactor):
    """A group member; it leaves after a while, and returns."""

    def __init__(self, setting: Setting, process: int, seed: int, protocol: GroupProtocol) -> None:
        super().__init__(setting, process, seed)
        self._protocol = protocol
        self.group = self._group = f"transactors-{protocol}"

    def open(self) -> None:
        """Create a consumer, which starts at the group's committed offsets."""
        self._is_rebalanced = self._must_rewind = False
        self._until = time.monotonic() + self.random.uniform(1, 2) * MEMBER_SECONDS
        self._consumer = Consumer(self.setting.clients.member(self._group, self._protocol))
        self.note(Kind.SUBSCRIBE, self._subscribe)

    def work(self) -> None:
        if time.monotonic() > self._until:
            self._consumer.close()
            self.open()
        super().work()

    def rewind(self, steps: list[Step]) -> str:
        """Return to the group's committed offsets; partitions assigned later start there anyway."""
        for one in self._consumer.committed(self._consumer.assignment(), CALL_SECONDS_MAX):
            if one.error is not None:
                return str(one.error.name())
            key, offset = Partition.of(one).key, max(0, one.offset)
            self._consumer.seek(_at(key, offset))
            steps.append(Reset({key: offset}))
        return ""

    def send_offsets(self, producer: Producer) -> bool:
        if self._is_rebalanced:
            return False
        if offsets := [_at(key, offset) for key, offset in next_offsets(self._steps).items()]:
            metadata = self._consumer.consumer_group_metadata()
            bounded(lambda seconds: producer.send_offsets_to_transaction(offsets, metadata, seconds))
        return True

    def _transaction(self, producer: Producer) -> None:
        self._is_rebalanced = False
        super()._transaction(producer)

    def _subscribe(self, steps: list[Step]) -> str:
        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            add_reset(self._steps, partitions)

        def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
            add_reset(self._steps, partitions)
            self._is_rebalanced = True

        self._consumer.subscribe(self.setting.topics, on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        add_reset(steps, [partition.at(0) for partition in self.setting.partitions])
        return ""


def next_offsets(steps: list[Step]) -> dict[str, int]:
    """Return, by key, the next offsets after the polled records."""
    records = (record for step in steps if isinstance(step, Poll) for record in step.records)
    return {key: offset + 1 for key, offset, _ in records}


def _at(key: str, offset: int) -> TopicPartition:
    topic, _, number = key.rpartition("/")
    return Partition(topic, int(number)).at(offset)


def bounded(call: Callable[[float], None]) -> None:
    """Abandon a call of librdkafka that exceeds its timeout, as it sometimes does (issue 5456)."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            call(CALL_SECONDS_MAX)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CALL_SECONDS_MAX + 1.0)
    if thread.is_alive():
        raise Hung
    for error in errors:
        raise error


def _twice(call: Callable[[float], None]) -> None:
    """Call again if the library reports a retriable error."""
    try:
        call(CALL_SECONDS_MAX)
    except KafkaException as failed:
        if not error_of(failed).retriable():
            raise
        call(CALL_SECONDS_MAX)
