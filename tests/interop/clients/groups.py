"""A group on one topic: its members, the records written for them, and its description by the broker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, TypeVar
from uuid import uuid4

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from clients.client import SECONDS_MAX, Client
from clients.fixtures import new_topic
from clients.members import Joining, Member, Place, Way

PAUSE_SECONDS = 0.05
Found = TypeVar("Found")
Owned = dict[str, frozenset[int]]  # The partitions of each member, by its name.


class Group:
    """A group, for `with`: remaining members leave at the end."""

    def __init__(self, address: str, partitions: int) -> None:
        self.name = f"group-{uuid4().hex[:12]}"
        self.partitions = frozenset(range(partitions))
        self.topic = new_topic(address, partitions)
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
        self._present: dict[str, Member] = {}
        self._left: list[Member] = []
        self.names: list[str] = []
        self.written: set[bytes] = set()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._present):
            with suppress(Exception):  # Its error is known, or it has left.
                self.leave(name)

    def join(self, client: Client, way: Way, instance: str = "") -> str:
        """Add a member, and return its name, which is its instance id if it has one."""
        name = instance or f"{client.name.replace(' ', '-')}-{len(self.names)}"
        self.names.append(name)
        self._present[name] = client.join(Joining(name, self.name, self.topic, way, instance))
        return name

    def leave(self, name: str) -> None:
        member = self._present.pop(name)
        member.leave()
        self._left.append(member)

    def leave_all(self) -> None:
        for name in list(self._present):
            self.leave(name)

    def places(self, name: str) -> Sequence[Place]:
        return self._present[name].places()

    def write(self, each: int) -> None:
        """Write this number of records to every partition, and wait for their acknowledgment."""
        for _ in range(each):
            for partition in self.partitions:
                value = b"%d" % len(self.written)
                self.written.add(value)
                self._producer.produce(self.topic, value, partition=partition)
        assert self._producer.flush(SECONDS_MAX) == 0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write one record to every partition repeatedly until the end of the block."""
        is_over = Event()

        def work() -> None:
            while not is_over.wait(PAUSE_SECONDS):
                self.write(1)

        thread = Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(SECONDS_MAX)

    def read(self) -> Counter[bytes]:
        """Return the values read by all members, including former ones, with their counts."""
        members = [*self._present.values(), *self._left]
        return Counter(place.value for member in members for place in member.places())

    def has_read_all(self) -> Counter[bytes]:
        """Wait until all written records are read."""
        return until(lambda: found if (found := self.read()).keys() >= self.written else None, self._story)

    def settled(self) -> Owned:
        """Wait until every member has partitions, and every partition has one member."""
        return until(self._settled, self._story)

    def _settled(self) -> Owned | None:
        try:
            described = self._described()
        except KafkaException as error:
            # There may be no member yet, and Apache Kafka responds before its coordinator is ready.
            if error.args[0].retriable() or error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            raise
        owned: Owned = {}
        for one in described.members:
            mine = one.assignment.topic_partitions if one.assignment else ()
            owned[one.client_id] = frozenset(place.partition for place in mine)
        all_of_them = sorted(partition for some in owned.values() for partition in some)
        is_whole = all(owned.values()) and all_of_them == sorted(self.partitions)
        if described.state == ConsumerGroupState.STABLE and is_whole and owned.keys() == self._present.keys():
            return owned
        return None

    def _described(self) -> Any:
        (future,) = self._admin.describe_consumer_groups([self.name]).values()
        return future.result(SECONDS_MAX)

    def _story(self) -> str:
        """Return a description of the group for a failed test."""
        try:
            members = self._described().members
            owned = {one.client_id: [place.partition for place in one.assignment.topic_partitions] for one in members}
        except KafkaException as error:
            owned = {str(error): []}
        return f"the broker says {owned}, present are {[*self._present]}; {len(self.written - self.read().keys())} lost"


def until(find: Callable[[], Found | None], explain: Callable[[], str]) -> Found:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := find()) is None:
        assert time.monotonic() < deadline, explain()
        time.sleep(PAUSE_SECONDS)
    return found
