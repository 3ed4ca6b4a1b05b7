"""A controller answers before other brokers have heard of what it did: wait until one of them has."""

from __future__ import annotations

from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.describe import describe_topics
from odradek.client.connection.client_errors import ClientError, UnknownTopic
from odradek.client.connection.retry import Patience, is_retriable

PATIENCE_MS = 10_000


def wait_until_seen(cluster: Cluster, name: str, partitions: int, *, timeout_ms: int = PATIENCE_MS) -> bool:
    """Waits until a broker knows the topic with so many partitions or more, or with 0 knows that it is gone.

    False if none does in time, or none answers: the change was made, but whoever asks next may not see it.
    """
    patience = Patience(cluster.config, timeout_ms)
    try:
        while not is_seen(cluster, name, partitions):
            patience.wait(ClientError(f"no broker has heard of {name} yet"))
    except ClientError:
        return False
    return True


def is_seen(cluster: Cluster, name: str, partitions: int) -> bool:
    """Asks once.  Raises ClientError for an error that waiting does not help."""
    try:
        (topic,) = describe_topics(cluster, [name])
    except ClientError as error:
        if not is_retriable(error):
            raise
        return partitions == 0 and isinstance(error, UnknownTopic)
    return 0 < partitions <= len(topic.partitions)
