"""Which partitions of a request there are, of topics that its principal may read.  The others are refused one by one,
and come first in the answer, as Apache Kafka has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.access import Operation, ResourceType, Rights
from odradek.core.cluster import ClusterView, TopicInfo


class HasIndex(Protocol):
    partition_index: int


P = TypeVar("P", bound=HasIndex)


class Asked(NamedTuple):
    """A topic as the client names it: by name, or by id."""

    name: str
    id: Uuid = ZERO_UUID


class Known(NamedTuple, Generic[P]):
    """A partition that there is, with what is asked of it."""

    asked: Asked
    topic: TopicInfo
    wanted: P


Codes = dict[Asked, list[tuple[int, ErrorCode]]]  # By topic, then by partition, in the order of the answer.


class Partitions(Generic[P]):
    """Those of one request."""

    __slots__ = ("_codes", "known")

    def __init__(
        self, view: ClusterView, rights: Rights, asked: Iterable[tuple[Asked, Sequence[P]]], *, by_id: bool
    ) -> None:
        self.known: list[Known[P]] = []
        self._codes: Codes = {}
        for one, partitions in asked:
            topic = view.topic_by_id(one.id) if by_id else view.topics.get(TopicName(one.name))
            code = _why_not(rights, one.name if topic is None else topic.name, topic, by_id)
            if topic is None or code:
                self._refuse(one, partitions, code)
                continue
            count = len(topic.partitions)
            for wanted in partitions:
                if 0 <= wanted.partition_index < count:
                    self.known.append(Known(one, topic, wanted))
                else:
                    self._refuse(one, (wanted,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _refuse(self, asked: Asked, partitions: Sequence[P], code: ErrorCode) -> None:
        if partitions:
            self._codes.setdefault(asked, []).extend((one.partition_index, code) for one in partitions)

    def codes(self, of_known: Iterable[ErrorCode]) -> Codes:
        """All of them, once it is known what became of the known ones.  To be asked once."""
        codes = self._codes
        for one, code in zip(self.known, of_known, strict=False):
            codes.setdefault(one.asked, []).append((one.wanted.partition_index, code))
        return codes


def _why_not(rights: Rights, name: str, topic: TopicInfo | None, by_id: bool) -> ErrorCode:
    """NONE if the topic is there and may be read.  Who may not read it is not told whether it is there."""
    if topic is None and by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not rights.allows(Operation.READ, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE
