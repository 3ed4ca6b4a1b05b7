"""Coordinators: brokers responsible for groups and transactional ids, looked up again after a move.

There are two kinds of access. on_coordinators() handles many names with one request to each broker, and returns an
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
    ErrorAnswer,
    KafkaUnavailable,
    Unsupported,
    answer_error,
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

    def called(self, key: str) -> str:
        return f"group {key}" if self is KeyType.GROUP else f"transactional id {key}"


def has_moved(error: ClientError) -> bool:
    """Return whether the coordinator may be a different broker now."""
    return isinstance(error, KafkaUnavailable) or (isinstance(error, ErrorAnswer) and error.code in MOVED)


def find_coordinators(cluster: Cluster, kind: KeyType, keys: Iterable[str]) -> dict[str, int | ClientError]:
    """Look up the broker of each name once; a name with an error in the answer gets that error."""
    wanted = list(keys)
    found = cluster.call_any(lambda connection: _ask(connection, kind, wanted), timeout_ms=0)
    return {key: _node(cluster, kind, key, found.get(key)) for key in wanted}


def _ask(connection: Connection, kind: KeyType, keys: list[str]) -> dict[str, FoundCoordinator]:
    version = connection.version(FindCoordinatorRequest)
    if version >= VERSION_WITH_MANY_KEYS:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
        answer = connection.call(request, FindCoordinatorResponse, version=version)
        return {each.key: each for each in answer.coordinators}
    if kind is not KeyType.GROUP and version < VERSION_WITH_KINDS:
        raise Unsupported(f"{connection.where} does not support transactions: it is older than Kafka 0.11")
    asked = [
        connection.send(FindCoordinatorRequest(key=key, key_type=kind), FindCoordinatorResponse, version=version)
        for key in keys
    ]
    return {key: _alone(key, pending.result()) for key, pending in zip(keys, asked, strict=True)}


def _alone(key: str, answer: FindCoordinatorResponse) -> FoundCoordinator:
    return FoundCoordinator(
        key=key,
        node_id=answer.node_id,
        host=answer.host,
        port=answer.port,
        error_code=answer.error_code,
        error_message=answer.error_message,
    )


def _node(cluster: Cluster, kind: KeyType, key: str, found: FoundCoordinator | None) -> int | ClientError:
    if found is None:
        return answer_error(ErrorCode.UNKNOWN_SERVER_ERROR, kind.called(key), "missing in the response")
    if found.error_code != ErrorCode.NONE:
        return answer_error(found.error_code, kind.called(key), found.error_message)
    known = cluster.metadata.brokers.get(found.node_id)
    if known is None or known.address != (found.host, found.port):
        cluster.metadata.brokers[found.node_id] = Broker(found.node_id, found.host, found.port)
    return found.node_id


def on_coordinators(
    cluster: Cluster,
    kind: KeyType,
    keys: Iterable[str],
    ask: Callable[[int, list[str]], Mapping[str, T | ClientError]],
    *,
    timeout_ms: int | None = None,
) -> dict[str, T | ClientError]:
    """Send requests to each name's coordinator; retry retriable errors until timeout_ms.

    The default of timeout_ms is api_timeout_ms. `ask` gets a broker's id and the names it coordinates. It returns an
    outcome for every name, or raises an error for all of them.
    """
    wanted = list(dict.fromkeys(keys))
    outcomes: dict[str, T | ClientError] = {}
    missing = wanted
    patience = RetryDeadline(cluster.config, timeout_ms)
    while missing:
        outcomes |= _round(cluster, kind, missing, ask)
        failed = {key: outcomes[key] for key in missing}
        errors = {key: each for key, each in failed.items() if isinstance(each, ClientError) and is_retriable(each)}
        missing = list(errors)
        if missing:
            cluster.ask_another()
        if errors and not patience.allows(next(iter(errors.values()))):
            break
    return {key: outcomes[key] for key in wanted}


def _round(
    cluster: Cluster,
    kind: KeyType,
    keys: list[str],
    ask: Callable[[int, list[str]], Mapping[str, T | ClientError]],
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
            outcomes |= ask(node, group)
        except ClientError as error:
            outcomes |= dict.fromkeys(group, error)
    for key in keys:
        if key not in outcomes:
            outcomes[key] = answer_error(ErrorCode.UNKNOWN_SERVER_ERROR, kind.called(key), "missing in the response")
    return outcomes


def on_coordinator(cluster: Cluster, kind: KeyType, key: str, ask: Callable[[Connection], T]) -> T:
    """Send a request to the coordinator of one name, as on_coordinators() does, and raise its error."""
    outcome = on_coordinators(cluster, kind, [key], lambda node, _: {key: ask(cluster.connection(node))})[key]
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome


def on_every_broker(
    cluster: Cluster, ask: Callable[[Connection], list[T]], failures: dict[int, ClientError] | None = None
) -> dict[int, list[T]]:
    """Send a request to all brokers, each of which coordinates some names, and return the results by id.

    A retry repeats all requests: after a broker failure, its names may belong to a broker that was queried before.
    Errors of brokers that stay unavailable go into `failures`; without `failures` the first one is raised.
    """
    patience = RetryDeadline(cluster.config)
    while True:
        outcomes = _asked_once(cluster, ask)
        failed = {node: one for node, one in outcomes.items() if isinstance(one, ClientError)}
        for error in failed.values():
            if not is_retriable(error):
                raise error
        if not failed or not patience.allows(next(iter(failed.values()))):
            break
    if failures is not None:
        failures |= failed
    elif failed:
        raise next(iter(failed.values()))
    return {node: one for node, one in outcomes.items() if not isinstance(one, ClientError)}


def _asked_once(cluster: Cluster, ask: Callable[[Connection], list[T]]) -> dict[int, list[T] | ClientError]:
    cluster.retry(lambda: cluster.refresh([]))
    outcomes: dict[int, list[T] | ClientError] = {}
    for node in sorted(cluster.metadata.brokers):
        try:
            outcomes[node] = ask(cluster.connection(node))
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
        self._cluster.ask_another()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, ask: Callable[[Connection], T], *, timeout_ms: int | None = None) -> T:
        """Send a request with retries of retriable errors until timeout_ms (default api_timeout_ms)."""
        patience = RetryDeadline(self._cluster.config, timeout_ms)
        while True:
            try:
                return ask(self.connection())
            except ClientError as error:
                if has_moved(error):
                    self.forget()
                patience.again(error)
