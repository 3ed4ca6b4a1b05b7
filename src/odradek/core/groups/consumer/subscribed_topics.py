"""Lookup of a group's subscribed topics in the cluster, by name or by regular expression.

A pattern matches a topic's whole name. Clients may send any pattern, and RE2 bounds the cost (core/kernel/patterns): a
match against all topics of a broker takes milliseconds.

Differs from Kafka: a new pattern is matched at once, and the answer already contains partitions. In Kafka a thread
matches it, and partitions follow with a later heartbeat. Internal topics match like any other, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set
from hashlib import blake2b
from struct import pack

from odradek.base.errors import Refused
from odradek.base.units import SECOND_MS, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.kernel.cluster_view import ClusterView, TopicInfo
from odradek.core.kernel.patterns import Pattern

_LOG = logging.getLogger(__name__)

HASH_BYTES = 8
REFRESH_REGEXES_MS_MIN = 10 * SECOND_MS  # The minimum interval between two matches of all topics for one group.


def present(names: Set[str], view: ClusterView) -> list[TopicInfo]:
    """Return the existing topics with an id; topics created before ids can't be assigned by id."""
    if len(names) > len(view.topics):  # A member may name any number of topics.
        found = (topic if name in names else None for name, topic in view.topics.items())
    else:
        found = (view.topics.get(TopicName(name)) for name in names)
    return [topic for topic in found if topic is not None and topic.id != ZERO_UUID]


def ids(names: Set[str], view: ClusterView) -> frozenset[Uuid]:
    return frozenset(topic.id for topic in present(names, view))


def metadata_hash(names: Set[str], view: ClusterView) -> int:
    """Return a hash of everything that affects an assignment: topics, partition counts, replica racks.

    Kafka stores XXH3 of the same facts here. A group written by the other implementation gets a new epoch, once.
    """
    topics = sorted(present(names, view))
    if not topics:
        return 0
    racks = {broker.id: broker.rack for broker in view.brokers.values() if broker.rack is not None}
    digest = blake2b(digest_size=HASH_BYTES)
    for topic in topics:
        digest.update(pack(">16si", topic.id, len(topic.partitions)))
        if racks:
            for index, partition in enumerate(topic.partitions):
                names_of_racks = sorted({racks[broker] for broker in partition.replicas if broker in racks})
                digest.update(repr((index, names_of_racks)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def check_pattern(pattern: str) -> None:
    """Raise Refused(INVALID_REGULAR_EXPRESSION) for a pattern that RE2 can't compile."""
    Pattern(pattern)


def matching(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics that a pattern matches.

    Returns none if it can't be compiled, as with a pattern that another broker accepted.
    """
    try:
        compiled = Pattern(pattern)
    except Refused as refused:
        _LOG.error("ignored the regular expression of a subscription: %s", refused)
        return frozenset()
    return frozenset(topic for topic in topics if compiled.matches(topic))
