"""A cluster as a client sees it: who its brokers are, who leads which partition, and one connection to each of them.

Two kinds of patience.  connect() tries every bootstrap server once and says at once when nothing answers: right for a
person at a terminal.  Everything after it (and everything without it, in a Spark task) retries what is retriable, with
new metadata and backoff, until api_timeout_ms: a broker that restarts is waited for.

Not thread-safe, and not picklable: pickle the ClientConfig and make a Cluster where it is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, TopicName, TopicPartition
from odradek.client.cluster.topic_metadata import Metadata, Partition, Topic
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_config import Address, ClientConfig
from odradek.client.connection.client_errors import ClientError, KafkaUnavailable, NotKafka, TlsRefused, answer_error
from odradek.client.connection.retry import Patience
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

BOOTSTRAP = NO_BROKER  # The connection to whoever answered first, before its broker id is known.


class Cluster:
    """Connections and metadata of one cluster.  A context manager; close() closes every connection it handed out."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.metadata = Metadata()
        self._connections: dict[int, Connection] = {}
        self._dedicated: list[Connection] = []
        self._refreshed_at: dict[str, float] = {}
        self._entrance: Address | None = None  # Where the BOOTSTRAP connection leads to.
        self._answered: Address | None = None  # Who answered the last question that any broker may answer.
        self._avoided: Address | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in [*self._connections.values(), *self._dedicated]:
            connection.close()
        self._connections.clear()
        self._dedicated.clear()

    def connect(self) -> Self:
        """Reach any bootstrap server, once.  Raises KafkaUnavailable, NotKafka or TlsRefused, that of the first."""
        self.refresh([])
        return self

    # Metadata.

    def refresh(self, topics: Iterable[str] | None, *, may_create: bool = False) -> list[Topic]:
        """Ask once for these topics (None: all of them), from any broker that answers.

        A topic the cluster does not know comes back with its error.  may_create lets the broker create it, if
        auto.create.topics.enable is set there.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=may_create)
        answer = self._any_broker(lambda connection: connection.call(request, MetadataResponse))
        found = self.metadata.merge(answer)
        now = time.monotonic()
        self._refreshed_at.update((topic.name, now) for topic in found)
        return found

    def topics(self) -> list[Topic]:
        """Every topic of the cluster, by name, retried until api_timeout_ms."""
        return sorted(self.retry(lambda: self.refresh(None)), key=lambda topic: topic.name)

    def topic(self, name: str, *, timeout_ms: int | None = None, may_create: bool = False) -> Topic:
        """One topic, from the cache while it is younger than metadata_max_age_ms.

        Waits for it to exist and be led until timeout_ms (default api_timeout_ms; 0 asks once).  Raises UnknownTopic.
        """
        known = self.metadata.topics.get(name)
        if known is not None and known.error == ErrorCode.NONE and not self._is_stale(name):
            return known

        def ask() -> Topic:
            (found,) = self.refresh([name], may_create=may_create)
            if found.error != ErrorCode.NONE:
                raise answer_error(found.error, f"topic {name}")
            return found

        return self.retry(ask, timeout_ms=timeout_ms)

    def partitions(self, names: Iterable[str], *, timeout_ms: int | None = None) -> list[TopicPartition]:
        """Every partition of these topics, by topic and number."""
        return [
            TopicPartition(TopicName(name), partition.index)
            for name in names
            for partition in self.topic(name, timeout_ms=timeout_ms).partitions
        ]

    def partition(self, wanted: TopicPartition) -> Partition:
        """The cached state of one partition.  Raises UnknownTopic, or another ErrorAnswer, if it has none to use."""
        topic = self.metadata.topics.get(wanted.topic)
        partition = topic.partition(wanted.partition) if topic else None
        if topic is not None and topic.error != ErrorCode.NONE:
            raise answer_error(topic.error, f"topic {wanted.topic}")
        if partition is None:
            raise answer_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(wanted))
        return partition

    def leader(self, wanted: TopicPartition) -> int:
        """The broker that leads a partition now, as far as is known.  Raises an ErrorAnswer when nobody does."""
        leader = self.partition(wanted).leader
        if leader not in self.metadata.brokers:
            raise answer_error(ErrorCode.LEADER_NOT_AVAILABLE, str(wanted))
        return leader

    def learn(self, partitions: Iterable[TopicPartition], *, may_create: bool = False) -> None:
        """Have metadata of the topics of these partitions: asks for those that are missing, stale or in error."""
        missing = {partition.topic for partition in partitions if self._needs_refresh(partition)}
        if missing:
            self.refresh(sorted(missing), may_create=may_create)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The next learn() asks for the topics of these partitions again: one of them was not where it should be."""
        self.metadata.forget({partition.topic for partition in partitions})
        self.ask_another()

    def ask_another(self) -> None:
        """Has the next question for any broker go to another one: what the last one said did not help.

        A broker that is cut off from its cluster goes on telling clients what was true before.
        """
        self._avoided = self._answered

    # Connections.

    def connection(self, node: int) -> Connection:
        """The shared connection to one broker."""
        connection = self._connections.get(node)
        if connection is None or not connection.is_open:
            connection = self._connections[node] = self._connect(node)
        return connection

    def dedicated(self, node: int) -> Connection:
        """A new connection to one broker, for requests that keep the broker waiting (long polls)."""
        connection = self._connect(node)
        self._dedicated = [open_one for open_one in self._dedicated if open_one.is_open]
        self._dedicated.append(connection)
        return connection

    def controller(self) -> Connection:
        """The connection for changes of topics; asks who the controller is if that is not known."""
        if self.metadata.controller not in self.metadata.brokers:
            self.refresh([])
        if self.metadata.controller not in self.metadata.brokers:
            raise answer_error(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at present")
        return self.connection(self.metadata.controller)

    def call_any(self, ask: Callable[[Connection], T], *, timeout_ms: int | None = None) -> T:
        """Ask any broker, retried until timeout_ms (default api_timeout_ms; 0 asks once)."""
        return self.retry(lambda: self._any_broker(ask), timeout_ms=timeout_ms)

    def retry(self, attempt: Callable[[], T], *, timeout_ms: int | None = None) -> T:
        """Repeat what fails with a retriable error, with backoff, until timeout_ms (default api_timeout_ms)."""
        patience = Patience(self.config, timeout_ms)
        while True:
            try:
                return attempt()
            except ClientError as error:
                patience.again(error)

    def _any_broker(self, ask: Callable[[Connection], T]) -> T:
        """The first answer, from an open connection, a known broker, or a bootstrap server, in this order."""
        failure: ClientError | None = None
        for address, opened in self._reachable():
            try:
                connection = opened()
                self._answered = address
                return ask(connection)
            except (KafkaUnavailable, NotKafka, TlsRefused) as error:
                failure = failure or error
        assert failure is not None, "there is at least one bootstrap server"
        raise failure

    def _reachable(self) -> list[tuple[Address | None, Callable[[], Connection]]]:
        def to_node(node: int) -> tuple[Address | None, Callable[[], Connection]]:
            broker = self.metadata.brokers.get(node)
            return broker.address if broker else self._entrance, lambda: self.connection(node)

        def to_address(address: Address) -> tuple[Address | None, Callable[[], Connection]]:
            return address, lambda: self._bootstrap(address)

        connected = [node for node, connection in self._connections.items() if connection.is_open]
        others = [node for node in self.metadata.brokers if node not in connected]
        known = {broker.address for broker in self.metadata.brokers.values()}
        rest = [to_address(address) for address in self.config.addresses if address not in known]
        found = [to_node(node) for node in connected + others] + rest
        return sorted(found, key=lambda one: one[0] is not None and one[0] == self._avoided)  # It is asked last.

    def _bootstrap(self, address: Address) -> Connection:
        self._connections.pop(BOOTSTRAP, None)
        connection = self._connections[BOOTSTRAP] = Connection(address, self.config)
        self._entrance = address
        return connection

    def _connect(self, node: int) -> Connection:
        broker = self.metadata.brokers.get(node)
        if broker is None:
            raise KafkaUnavailable(f"broker {node} is not in the cluster at present")
        try:
            return Connection(broker.address, self.config)
        except KafkaUnavailable as error:
            if broker.address in self.config.addresses:
                raise
            raise KafkaUnavailable(f"{error} (the address that broker {node} advertises)") from error

    def _is_stale(self, name: str) -> bool:
        age = time.monotonic() - self._refreshed_at.get(name, float("-inf"))
        return age * 1000 > self.config.metadata_max_age_ms

    def _needs_refresh(self, wanted: TopicPartition) -> bool:
        topic = self.metadata.topics.get(wanted.topic)
        partition = topic.partition(wanted.partition) if topic else None
        return partition is None or partition.leader not in self.metadata.brokers or self._is_stale(wanted.topic)
