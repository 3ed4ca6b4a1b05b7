"""Waiting for another broker to learn of a change that the controller has already answered."""

from __future__ import annotations

from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.describe import describe_topics
from odradek.client.connection.client_errors import ClientError, UnknownTopic
from odradek.client.connection.retry import RetryDeadline, is_retriable

TIMEOUT_MS = 10_000


def wait_until_seen(cluster: Cluster, name: str, partitions: int, *, timeout_ms: int = TIMEOUT_MS) -> bool:
    """Wait until a broker knows the topic with at least this many partitions, or, for 0, its deletion.

    Return False if no broker does in time or none answers: the change was made, but the next request may not see it.
    """
    deadline = RetryDeadline(cluster.config, timeout_ms)
    try:
        while not is_seen(cluster, name, partitions):
            deadline.wait(ClientError(f"no broker knows topic {name} yet"))
    except ClientError:
        return False
    return True


def is_seen(cluster: Cluster, name: str, partitions: int) -> bool:
    """Check once; raise ClientError for an error that can't be retried."""
    try:
        (topic,) = describe_topics(cluster, [name])
    except ClientError as error:
        if not is_retriable(error):
            raise
        return partitions == 0 and isinstance(error, UnknownTopic)
    return 0 < partitions <= len(topic.partitions)
