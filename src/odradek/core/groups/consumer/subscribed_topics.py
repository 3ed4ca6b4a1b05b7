"""Finds the topics that a group is subscribed to in the cluster: by name, or by a regular expression.

A pattern matches a topic's whole name.  It is whatever a client sends, and RE2 bounds what that costs
(core/kernel/patterns): looking through all topics of a broker stays a matter of milliseconds.

Differs from Kafka: a new pattern is held against the topics at once, and the answer brings partitions; there a thread
does it, and they come with a later heartbeat.  Internal topics match like any other, there as here.
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
RESOLVE_AGAIN_MS_MIN = 10 * SECOND_MS  # Between two looks at all topics for one group.


def present(names: Set[str], view: ClusterView) -> list[TopicInfo]:
    """Returns the topics that exist and have an id: one from before ids can't be assigned by its id."""
    if len(names) > len(view.topics):  # A member may name whatever it likes.
        found = (topic if name in names else None for name, topic in view.topics.items())
    else:
        found = (view.topics.get(TopicName(name)) for name in names)
    return [topic for topic in found if topic is not None and topic.id != ZERO_UUID]


def ids(names: Set[str], view: ClusterView) -> frozenset[Uuid]:
    return frozenset(topic.id for topic in present(names, view))


def metadata_hash(names: Set[str], view: ClusterView) -> int:
    """Returns a hash that changes when an assignment may: topics came, went or grew, or replicas are on other racks.

    Kafka writes XXH3 of the same facts here.  A group that was written by the other one gets a new epoch, once.
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
    """Raises Refused(INVALID_REGULAR_EXPRESSION) for a pattern that RE2 can't compile."""
    Pattern(pattern)


def matching(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """Returns the topics that a pattern matches; none if we can't compile it, as one that another broker took."""
    try:
        compiled = Pattern(pattern)
    except Refused as refused:
        _LOG.error("a subscription is left out: %s", refused)
        return frozenset()
    return frozenset(topic for topic in topics if compiled.matches(topic))
