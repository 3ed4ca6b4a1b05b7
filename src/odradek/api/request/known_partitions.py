"""Partitions of a request that exist and whose topics the principal may read.

The other partitions are refused individually and come first in the answer, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.kernel.access import Operation, ResourceType, Rights
from odradek.core.kernel.cluster_view import ClusterView, TopicInfo


class HasIndex(Protocol):
    partition_index: int


P = TypeVar("P", bound=HasIndex)


class RequestedTopic(NamedTuple):
    """A topic as the client names it: by name, or by id."""

    name: str
    id: Uuid = ZERO_UUID


class KnownPartition(NamedTuple, Generic[P]):
    """An existing partition, with the request's element for it."""

    requested_topic: RequestedTopic
    topic: TopicInfo
    partition_request: P


Codes = dict[RequestedTopic, list[tuple[int, ErrorCode]]]  # By topic, then by partition, in the order of the answer.


class Partitions(Generic[P]):
    """The partitions of one request, existing and refused ones.

    `find_partitions` finds them, in parts. `count` is the number of elements in the request, topics included.
    """

    __slots__ = ("_codes", "count", "known")

    def __init__(self) -> None:
        self.count = 0
        self.known: list[KnownPartition[P]] = []
        self._codes: Codes = {}

    def find_partitions(
        self, view: ClusterView, rights: Rights, requested: Iterable[tuple[RequestedTopic, Sequence[P]]], *, by_id: bool
    ) -> Parts[None]:
        for requested_topic, partitions in requested:
            topic = view.topic_by_id(requested_topic.id) if by_id else view.topics.get(TopicName(requested_topic.name))
            code = _topic_error(rights, requested_topic.name if topic is None else topic.name, topic, by_id)
            self.count += 1 + len(partitions)
            count = 0 if topic is None or code else len(topic.partitions)
            for number, partition_request in enumerate(partitions, 1):
                if topic is not None and 0 <= partition_request.partition_index < count:
                    self.known.append(KnownPartition(requested_topic, topic, partition_request))
                else:
                    code_of_one = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    self._codes.setdefault(requested_topic, []).append((partition_request.partition_index, code_of_one))
                if not number % CHEAP:
                    yield
            yield

    def codes(self, known_codes: Iterable[ErrorCode]) -> Parts[Codes]:
        """Return all error codes, given those of the existing partitions in order. To be called once."""
        codes, known = self._codes, self.known
        known.reverse()
        for code in known_codes:
            if not known:
                break
            known_partition = known.pop()  # Freed one by one, because freeing all of them at the end takes long.
            codes.setdefault(known_partition.requested_topic, []).append(
                (known_partition.partition_request.partition_index, code)
            )
            if not len(known) % CHEAP:
                yield
        return codes


def _topic_error(rights: Rights, name: str, topic: TopicInfo | None, by_id: bool) -> ErrorCode:
    """Return the error of a topic; NONE if it exists and the principal may read it.

    A principal without that right does not learn whether the topic exists.
    """
    if topic is None and by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not rights.allows(Operation.READ, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE
