"""A client that runs operations until it is stopped; one process of the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Protocol

from confluent_kafka import Message, TopicPartition

from checker.history import Key, Kind, Outcome, Poll, Reset, Send, Step
from workload.recorder import Recorder
from workload.settings import Clients

PAUSE_SECONDS = 0.05  # After an immediate failure.
WORKERS_MAX = 16


@dataclass(frozen=True, slots=True)
class Partition:
    topic: str
    number: int

    @property
    def key(self) -> Key:
        return f"{self.topic}/{self.number}"

    @classmethod
    def of(cls, one: Message | TopicPartition) -> Partition:
        topic, number = (one.topic(), one.partition()) if isinstance(one, Message) else (one.topic, one.partition)
        assert topic is not None
        assert number is not None
        return cls(topic, number)

    def at(self, offset: int) -> TopicPartition:
        return TopicPartition(self.topic, self.number, offset)


class Over(Protocol):
    """The stop signal of a workload, for all of its processes."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """The common context of all workers."""

    clients: Clients
    partitions: Sequence[Partition]
    recorder: Recorder
    is_over: Over

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.partitions})


class Worker:
    def __init__(self, setting: Setting, process: int, seed: int) -> None:
        assert process < WORKERS_MAX
        self.name = f"{type(self).__name__} {process}"
        self.setting = setting
        self.process = process
        self.random = Random(f"{seed} {process}")
        self._values = count(process, WORKERS_MAX)  # Nobody else's.

    def run(self) -> None:
        self.open()
        while not self.setting.is_over.is_set():
            self.work()
        self.close()

    def open(self) -> None:
        raise NotImplementedError

    def work(self) -> None:
        """Run one or a few operations."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def plan(self, most: int) -> list[Send]:
        """Return new values with random keys."""
        many = self.random.randint(1, most)
        keys = [self.random.choice(self.setting.partitions).key for _ in range(many)]
        return [Send(key, next(self._values)) for key in keys]

    def note(self, kind: Kind, did: Callable[[list[Step]], str]) -> None:
        """Record an operation without a commit; `did` adds its steps, and returns the error or an empty text."""
        steps: list[Step] = []
        self.setting.recorder.invoke(self.process, kind)
        error = did(steps)
        self.setting.recorder.complete(self.process, Outcome.INFO if error else Outcome.OK, steps, error)
        if error:
            time.sleep(PAUSE_SECONDS)


def add_records(steps: list[Step], messages: Iterable[Message]) -> None:
    """Add the records as one poll."""
    records = []
    for message in messages:
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        records.append((Partition.of(message).key, offset, int(value)))
    if records:
        steps.append(Poll(tuple(records), time.monotonic_ns()))


def add_reset(steps: list[Step], partitions: Iterable[TopicPartition]) -> None:
    """Add a change to unknown positions."""
    steps.append(Reset({Partition.of(partition).key: None for partition in partitions}))
