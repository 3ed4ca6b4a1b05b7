"""Requests to partition leaders: one per leader, all sent before the first answer is read.

A failure is an outcome of its partition, so an unavailable broker does not delay the results of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import SECOND_MS, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.broker_connection import Connection, Pending
from odradek.client.connection.client_errors import ClientError, ErrorResponse, response_error
from odradek.client.connection.retry import RetryDeadline, is_retriable

R = TypeVar("R")
T = TypeVar("T")

# A new leader is elected within a second after its broker fails. Later, only a returning broker can lead.
LEADERLESS_MS_MAX = 3 * SECOND_MS

Send = Callable[[Connection, list[TopicPartition]], Pending[R]]
Parse = Callable[[R], Iterable[tuple[TopicPartition, T | ClientError]]]


def call_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    send: Send[R],
    parse: Parse[R, T],
    *,
    timeout_ms: int | None = None,
    leaderless_ms: int | None = LEADERLESS_MS_MAX,
    is_strict: bool = False,
) -> dict[TopicPartition, T | ClientError]:
    """Return an outcome for each partition, with retries until timeout_ms (default api_timeout_ms).

    A partition without a leader is retried until leaderless_ms, or as long as the others for None. With is_strict the
    first error that can't be retried ends the call, and other outcomes may still be retriable errors.
    """
    requested = list(partitions)
    outcomes: dict[TopicPartition, T | ClientError] = {}
    deadline = RetryDeadline(cluster.config, timeout_ms)
    leaderless_deadline = float("inf") if leaderless_ms is None else time.monotonic() + leaderless_ms / 1000
    missing = requested
    while missing:
        outcomes |= _round(cluster, missing, send, parse)
        failed = {each: error for each in missing if isinstance(error := outcomes[each], ClientError)}
        if is_strict and not all(map(is_retriable, failed.values())):
            break
        is_late = time.monotonic() >= leaderless_deadline
        retriable = {
            each: error
            for each, error in failed.items()
            if is_retriable(error) and not (is_late and _is_leaderless(error))
        }
        missing = list(retriable)
        cluster.forget(failed)
        if retriable and not deadline.try_wait(next(iter(retriable.values()))):
            break
    return {each: outcomes[each] for each in requested}


def _is_leaderless(error: ClientError) -> bool:
    return isinstance(error, ErrorResponse) and error.code == ErrorCode.LEADER_NOT_AVAILABLE


def _round(
    cluster: Cluster, partitions: list[TopicPartition], send: Send[R], parse: Parse[R, T]
) -> dict[TopicPartition, T | ClientError]:
    """Send one round of requests."""
    try:
        cluster.learn(partitions)
    except ClientError as error:
        return dict.fromkeys(partitions, error)
    failures: dict[TopicPartition, ClientError] = {}
    sent: list[tuple[list[TopicPartition], Pending[R]]] = []
    for leader, led in group_by_leader(cluster, partitions, failures).items():
        try:
            sent.append((led, send(cluster.connection(leader), led)))
        except ClientError as error:
            failures |= dict.fromkeys(led, error)
    outcomes: dict[TopicPartition, T | ClientError] = dict(failures)
    for led, pending in sent:
        try:
            outcomes |= parse(pending.result())
        except ClientError as error:
            outcomes |= dict.fromkeys(led, error)
    for each in partitions:
        if each not in outcomes:
            outcomes[each] = response_error(ErrorCode.UNKNOWN_SERVER_ERROR, str(each), "missing in the response")
    return outcomes


def group_by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition], failures: dict[TopicPartition, ClientError]
) -> dict[int, list[TopicPartition]]:
    """Group partitions by leader, in their order; put partitions without a leader into `failures`."""
    groups: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        try:
            groups.setdefault(cluster.leader(partition), []).append(partition)
        except ClientError as error:
            failures[partition] = error
    return groups


def collect_failures(
    outcomes: Mapping[TopicPartition, T | ClientError], failures: dict[TopicPartition, ClientError] | None
) -> dict[TopicPartition, T]:
    """Return the successful outcomes and put the errors into `failures`.

    Without `failures`, raise an error: preferably one that can't be retried, otherwise the first.
    """
    failed = {each: outcome for each, outcome in outcomes.items() if isinstance(outcome, ClientError)}
    if failed and failures is None:
        raise next((outcome for outcome in failed.values() if not is_retriable(outcome)), next(iter(failed.values())))
    if failures is not None:
        failures |= failed
    return {each: outcome for each, outcome in outcomes.items() if not isinstance(outcome, ClientError)}
