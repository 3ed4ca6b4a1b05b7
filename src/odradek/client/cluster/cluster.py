"""A client's view of a cluster: brokers, partition leaders, and one connection to each broker.

There are two retry policies. connect() tries every bootstrap server once and fails immediately if none answers, which
suits a person at a terminal. Every other call (and Spark tasks, which do not connect first) retries retriable errors
with new metadata and backoff until api_timeout_ms, and so survives a broker restart.

A Cluster is neither thread-safe nor picklable: pickle the ClientConfig and create a Cluster in the receiving process.
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
from odradek.client.connection.client_errors import ClientError, KafkaUnavailable, NotKafka, TlsRefused, response_error
from odradek.client.connection.retry import RetryDeadline
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

BOOTSTRAP = NO_BROKER  # The connection to the first bootstrap server that answered, before its broker id is known.


class Cluster:
    """Connections and metadata of one cluster.

    It is a context manager; close() closes every connection it returned.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.metadata = Metadata()
        self._connections: dict[int, Connection] = {}
        self._dedicated: list[Connection] = []
        self._refreshed_at: dict[str, float] = {}
        self._bootstrap_address: Address | None = None  # The address of the BOOTSTRAP connection.
        self._last_address: Address | None = None  # The broker that answered the last request to any broker.
        self._avoided_address: Address | None = None

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
        """Connect to any bootstrap server, without retries.

        Raise KafkaUnavailable, NotKafka or TlsRefused, the error of the first server.
        """
        self.refresh([])
        return self

    # Metadata.

    def refresh(self, topics: Iterable[str] | None, *, may_create: bool = False) -> list[Topic]:
        """Request these topics (None: all topics) once, from any broker that answers.

        An unknown topic is returned with its error. may_create lets the broker create it if auto.create.topics.enable
        is set there.
        """
        request_topics = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=request_topics, allow_auto_topic_creation=may_create)
        response = self._any_broker(lambda connection: connection.call(request, MetadataResponse))
        found = self.metadata.merge(response)
        now = time.monotonic()
        self._refreshed_at.update((topic.name, now) for topic in found)
        return found

    def topics(self) -> list[Topic]:
        """Return every topic of the cluster by name, with retries until api_timeout_ms."""
        return sorted(self.retry(lambda: self.refresh(None)), key=lambda topic: topic.name)

    def topic(self, name: str, *, timeout_ms: int | None = None, may_create: bool = False) -> Topic:
        """Return one topic, from the cache if the entry is younger than metadata_max_age_ms.

        Wait for the topic to exist and have leaders until timeout_ms (default api_timeout_ms; 0 means one attempt).
        Raise UnknownTopic.
        """
        known = self.metadata.topics.get(name)
        if known is not None and known.error == ErrorCode.NONE and not self._is_stale(name):
            return known

        def refresh_topic() -> Topic:
            (found,) = self.refresh([name], may_create=may_create)
            if found.error != ErrorCode.NONE:
                raise response_error(found.error, f"topic {name}")
            return found

        return self.retry(refresh_topic, timeout_ms=timeout_ms)

    def partitions(self, names: Iterable[str], *, timeout_ms: int | None = None) -> list[TopicPartition]:
        """Return every partition of these topics, by topic and number."""
        return [
            TopicPartition(TopicName(name), partition.index)
            for name in names
            for partition in self.topic(name, timeout_ms=timeout_ms).partitions
        ]

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """Return the cached state of one partition.

        Raise UnknownTopic or another ErrorResponse if there is no usable state.
        """
        topic = self.metadata.topics.get(topic_partition.topic)
        partition = topic.partition(topic_partition.partition) if topic else None
        if topic is not None and topic.error != ErrorCode.NONE:
            raise response_error(topic.error, f"topic {topic_partition.topic}")
        if partition is None:
            raise response_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition))
        return partition

    def leader(self, topic_partition: TopicPartition) -> int:
        """Return the leader of a partition as far as known; raise an ErrorResponse if there is none."""
        leader = self.partition(topic_partition).leader
        if leader not in self.metadata.brokers:
            raise response_error(ErrorCode.LEADER_NOT_AVAILABLE, str(topic_partition))
        return leader

    def learn(self, partitions: Iterable[TopicPartition], *, may_create: bool = False) -> None:
        """Refresh the metadata of partitions whose topics are missing, stale or have errors."""
        missing = {partition.topic for partition in partitions if self._needs_refresh(partition)}
        if missing:
            self.refresh(sorted(missing), may_create=may_create)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the cached topics of these partitions after a partition was not at its expected leader.

        The next learn() requests these topics again.
        """
        self.metadata.forget({partition.topic for partition in partitions})
        self.use_another_broker()

    def use_another_broker(self) -> None:
        """Send the next request for any broker to a different broker.

        A broker that is partitioned from its cluster continues to return outdated metadata.
        """
        self._avoided_address = self._last_address

    # Connections.

    def connection(self, node: int) -> Connection:
        """Return the shared connection to one broker."""
        connection = self._connections.get(node)
        if connection is None or not connection.is_open:
            connection = self._connections[node] = self._connect(node)
        return connection

    def dedicated(self, node: int) -> Connection:
        """Open a new connection to one broker, for requests that wait at the broker (long polls)."""
        connection = self._connect(node)
        self._dedicated = [existing for existing in self._dedicated if existing.is_open]
        self._dedicated.append(connection)
        return connection

    def controller(self) -> Connection:
        """Return the connection to the controller, after looking it up if it is unknown."""
        if self.metadata.controller not in self.metadata.brokers:
            self.refresh([])
        if self.metadata.controller not in self.metadata.brokers:
            raise response_error(ErrorCode.NOT_CONTROLLER, "the cluster has no controller")
        return self.connection(self.metadata.controller)

    def call_any(self, send: Callable[[Connection], T], *, timeout_ms: int | None = None) -> T:
        """Send a request to any broker, with retries until timeout_ms.

        timeout_ms defaults to api_timeout_ms; 0 means one attempt.
        """
        return self.retry(lambda: self._any_broker(send), timeout_ms=timeout_ms)

    def retry(self, attempt: Callable[[], T], *, timeout_ms: int | None = None) -> T:
        """Repeat an attempt after retriable errors, with backoff, until timeout_ms (default api_timeout_ms)."""
        deadline = RetryDeadline(self.config, timeout_ms)
        while True:
            try:
                return attempt()
            except ClientError as error:
                deadline.wait_or_raise(error)

    def _any_broker(self, send: Callable[[Connection], T]) -> T:
        """Return the first answer of an open connection, a known broker or a bootstrap server, in this order."""
        failure: ClientError | None = None
        for address, connect in self._reachable():
            try:
                connection = connect()
                self._last_address = address
                return send(connection)
            except (KafkaUnavailable, NotKafka, TlsRefused) as error:
                failure = failure or error
        assert failure is not None, "the configuration has at least one bootstrap server"
        raise failure

    def _reachable(self) -> list[tuple[Address | None, Callable[[], Connection]]]:
        def to_node(node: int) -> tuple[Address | None, Callable[[], Connection]]:
            broker = self.metadata.brokers.get(node)
            return broker.address if broker else self._bootstrap_address, lambda: self.connection(node)

        def to_address(address: Address) -> tuple[Address | None, Callable[[], Connection]]:
            return address, lambda: self._bootstrap(address)

        connected = [node for node, connection in self._connections.items() if connection.is_open]
        others = [node for node in self.metadata.brokers if node not in connected]
        known = {broker.address for broker in self.metadata.brokers.values()}
        rest = [to_address(address) for address in self.config.addresses if address not in known]
        found = [to_node(node) for node in connected + others] + rest
        # The avoided broker comes last.
        return sorted(found, key=lambda candidate: candidate[0] is not None and candidate[0] == self._avoided_address)

    def _bootstrap(self, address: Address) -> Connection:
        self._connections.pop(BOOTSTRAP, None)
        connection = self._connections[BOOTSTRAP] = Connection(address, self.config)
        self._bootstrap_address = address
        return connection

    def _connect(self, node: int) -> Connection:
        broker = self.metadata.brokers.get(node)
        if broker is None:
            raise KafkaUnavailable(f"broker {node} is not registered in the cluster")
        try:
            return Connection(broker.address, self.config)
        except KafkaUnavailable as error:
            if broker.address in self.config.addresses:
                raise
            raise KafkaUnavailable(f"{error} (the address that broker {node} advertises)") from error

    def _is_stale(self, name: str) -> bool:
        age = time.monotonic() - self._refreshed_at.get(name, float("-inf"))
        return age * 1000 > self.config.metadata_max_age_ms

    def _needs_refresh(self, topic_partition: TopicPartition) -> bool:
        topic = self.metadata.topics.get(topic_partition.topic)
        partition = topic.partition(topic_partition.partition) if topic else None
        return (
            partition is None or partition.leader not in self.metadata.brokers or self._is_stale(topic_partition.topic)
        )
