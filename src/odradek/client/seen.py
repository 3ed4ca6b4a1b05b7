"""A controller answers before other brokers have heard of what it did: wait until one of them has."""

from __future__ import annotations

from odradek.client.cluster import Cluster
from odradek.client.describe import describe_topics
from odradek.client.errors import ClientError, UnknownTopic
from odradek.client.retry import Patience, is_retriable

PATIENCE_MS = 10_000


def wait_until_seen(cluster: Cluster, name: str, partitions: int, *, timeout_ms: int = PATIENCE_MS) -> bool:
    """True as soon as a broker knows the topic with so many partitions or more, or with 0 that it is gone.

    False if none does in time, or none says: what was done is done, but may not be seen by who asks next.
    """
    patience = Patience(cluster.config, timeout_ms)
    try:
        while not is_seen(cluster, name, partitions):
            patience.wait(ClientError(f"no broker has heard of {name} yet"))
    except ClientError:
        return False
    return True


def is_seen(cluster: Cluster, name: str, partitions: int) -> bool:
    """Raises ClientError for what is no matter of time."""
    try:
        (topic,) = describe_topics(cluster, [name])
    except ClientError as error:
        if not is_retriable(error):
            raise
        return partitions == 0 and isinstance(error, UnknownTopic)
    return 0 < partitions <= len(topic.partitions)
