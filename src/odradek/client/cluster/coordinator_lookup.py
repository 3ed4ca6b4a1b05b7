"""Coordinators: brokers responsible for groups and transactional ids, looked up again after a move.

There are two kinds of access. call_coordinators() handles many names with one request to each broker, and returns an
outcome for each name. A Coordinator serves one name for a long time over its own connection, because JoinGroup occupies
a connection for minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.topic_metadata import Broker
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import (
    ClientError,
    ErrorResponse,
    KafkaUnavailable,
    Unsupported,
    response_error,
)
from odradek.client.connection.retry import RetryDeadline, is_retriable
from odradek.wire.messages.find_coordinator import (
    Coordinator as FoundCoordinator,
)
from odradek.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")

VERSION_WITH_KINDS, VERSION_WITH_MANY_KEYS = 1, 4
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class KeyType(IntEnum):
    """The kind of name that a coordinator is responsible for."""

    GROUP = 0
    TRANSACTION = 1

    def describe(self, key: str) -> str:
        return f"group {key}" if self is KeyType.GROUP else f"transactional id {key}"


def has_moved(error: ClientError) -> bool:
    """Return whether the coordinator may be a different broker now."""
    return isinstance(error, KafkaUnavailable) or (isinstance(error, ErrorResponse) and error.code in MOVED)


def find_coordinators(cluster: Cluster, kind: KeyType, keys: Iterable[str]) -> dict[str, int | ClientError]:
    """Look up the broker of each name once; a name with an error in the answer gets that error."""
    requested = list(keys)
    found = cluster.call_any(lambda connection: _send_find_coordinator(connection, kind, requested), timeout_ms=0)
    return {key: _node(cluster, kind, key, found.get(key)) for key in requested}


def _send_find_coordinator(connection: Connection, kind: KeyType, keys: list[str]) -> dict[str, FoundCoordinator]:
    version = connection.version(FindCoordinatorRequest)
    if version >= VERSION_WITH_MANY_KEYS:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
        response = connection.call(request, FindCoordinatorResponse, version=version)
        return {each.key: each for each in response.coordinators}
    if kind is not KeyType.GROUP and version < VERSION_WITH_KINDS:
        raise Unsupported(f"{connection.where} does not support transactions: it is older than Kafka 0.11")
    sent = [
        connection.send(FindCoordinatorRequest(key=key, key_type=kind), FindCoordinatorResponse, version=version)
        for key in keys
    ]
    return {key: _from_single(key, pending.result()) for key, pending in zip(keys, sent, strict=True)}


def _from_single(key: str, response: FindCoordinatorResponse) -> FoundCoordinator:
    return FoundCoordinator(
        key=key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )


def _node(cluster: Cluster, kind: KeyType, key: str, found: FoundCoordinator | None) -> int | ClientError:
    if found is None:
        return response_error(ErrorCode.UNKNOWN_SERVER_ERROR, kind.describe(key), "missing in the response")
    if found.error_code != ErrorCode.NONE:
        return response_error(found.error_code, kind.describe(key), found.error_message)
    known = cluster.metadata.brokers.get(found.node_id)
    if known is None or known.address != (found.host, found.port):
        cluster.metadata.brokers[found.node_id] = Broker(found.node_id, found.host, found.port)
    return found.node_id


def call_coordinators(
    cluster: Cluster,
    kind: KeyType,
    keys: Iterable[str],
    send: Callable[[int, list[str]], Mapping[str, T | ClientError]],
    *,
    timeout_ms: int | None = None,
) -> dict[str, T | ClientError]:
    """Send requests to each name's coordinator; retry retriable errors until timeout_ms.

    The default of timeout_ms is api_timeout_ms. `send` gets a broker's id and the names it coordinates. It returns an
    outcome for every name, or raises an error for all of them.
    """
    requested = list(dict.fromkeys(keys))
    outcomes: dict[str, T | ClientError] = {}
    missing = requested
    deadline = RetryDeadline(cluster.config, timeout_ms)
    while missing:
        outcomes |= _round(cluster, kind, missing, send)
        failed = {key: outcomes[key] for key in missing}
        errors = {key: error for key, error in failed.items() if isinstance(error, ClientError) and is_retriable(error)}
        missing = list(errors)
        if missing:
            cluster.use_another_broker()
        if errors and not deadline.try_wait(next(iter(errors.values()))):
            break
    return {key: outcomes[key] for key in requested}


def _round(
    cluster: Cluster,
    kind: KeyType,
    keys: list[str],
    send: Callable[[int, list[str]], Mapping[str, T | ClientError]],
) -> dict[str, T | ClientError]:
    outcomes: dict[str, T | ClientError] = {}
    by_node: dict[int, list[str]] = {}
    try:
        found = find_coordinators(cluster, kind, keys)
    except ClientError as error:
        return dict.fromkeys(keys, error)
    for key, node in found.items():
        if isinstance(node, ClientError):
            outcomes[key] = node
        else:
            by_node.setdefault(node, []).append(key)
    for node, group in by_node.items():
        try:
            outcomes |= send(node, group)
        except ClientError as error:
            outcomes |= dict.fromkeys(group, error)
    for key in keys:
        if key not in outcomes:
            outcomes[key] = response_error(
                ErrorCode.UNKNOWN_SERVER_ERROR, kind.describe(key), "missing in the response"
            )
    return outcomes


def call_coordinator(cluster: Cluster, kind: KeyType, key: str, send: Callable[[Connection], T]) -> T:
    """Send a request to the coordinator of one name, as call_coordinators() does, and raise its error."""
    outcome = call_coordinators(cluster, kind, [key], lambda node, _: {key: send(cluster.connection(node))})[key]
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome


def call_every_broker(
    cluster: Cluster, send: Callable[[Connection], list[T]], failures: dict[int, ClientError] | None = None
) -> dict[int, list[T]]:
    """Send a request to all brokers, each of which coordinates some names, and return the results by id.

    A retry repeats all requests: after a broker failure, its names may belong to a broker that was queried before.
    Errors of brokers that stay unavailable go into `failures`; without `failures` the first one is raised.
    """
    deadline = RetryDeadline(cluster.config)
    while True:
        outcomes = _call_each_broker(cluster, send)
        failed = {node: outcome for node, outcome in outcomes.items() if isinstance(outcome, ClientError)}
        for error in failed.values():
            if not is_retriable(error):
                raise error
        if not failed or not deadline.try_wait(next(iter(failed.values()))):
            break
    if failures is not None:
        failures |= failed
    elif failed:
        raise next(iter(failed.values()))
    return {node: outcome for node, outcome in outcomes.items() if not isinstance(outcome, ClientError)}


def _call_each_broker(cluster: Cluster, send: Callable[[Connection], list[T]]) -> dict[int, list[T] | ClientError]:
    cluster.retry(lambda: cluster.refresh([]))
    outcomes: dict[int, list[T] | ClientError] = {}
    for node in sorted(cluster.metadata.brokers):
        try:
            outcomes[node] = send(cluster.connection(node))
        except ClientError as error:
            outcomes[node] = error
    return outcomes


class Coordinator:
    """The coordinator of one name, with its own connection."""

    def __init__(self, cluster: Cluster, kind: KeyType, key: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self._connection: Connection | None = None

    def connection(self) -> Connection:
        """Return the connection to the coordinator, looked up once if unknown, or raise ClientError."""
        if self._connection is None or not self._connection.is_open:
            node = find_coordinators(self._cluster, self._kind, [self._key])[self._key]
            if isinstance(node, ClientError):
                raise node
            self._connection = self._cluster.dedicated(node)
        return self._connection

    def forget(self) -> None:
        """Drop the connection and any pending answer, so that the next call looks up the coordinator again."""
        self._cluster.use_another_broker()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, send: Callable[[Connection], T], *, timeout_ms: int | None = None) -> T:
        """Send a request with retries of retriable errors until timeout_ms (default api_timeout_ms)."""
        deadline = RetryDeadline(self._cluster.config, timeout_ms)
        while True:
            try:
                return send(self.connection())
            except ClientError as error:
                if has_moved(error):
                    self.forget()
                deadline.wait_or_raise(error)
