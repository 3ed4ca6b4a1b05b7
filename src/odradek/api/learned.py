"""What a connection's requests of one API were like, so that the next ones like them need not be read.

A few shapes tell where a request may differ from those before it; its other bytes are the key to what they mean.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from odradek.base.units import TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.broker import Broker
from odradek.core.partition import Partition

Shape = TypeVar("Shape")
Meaning = TypeVar("Meaning")

SHAPES_MAX = 4
_MISSES_PER_PLACE = 16


class OnePartition:
    """What is known of requests for one partition."""

    def __init__(self, name: TopicPartition, topic_id: Uuid) -> None:
        """`topic_id` is zero where the topic is named."""
        self.name = name
        self.topic_id = topic_id
        self.has_topic_id = topic_id != ZERO_UUID

    def find(self, broker: Broker) -> Partition | None:
        """None if it is gone; a topic that was made anew has another id."""
        if self.has_topic_id and broker.view.names.get(self.topic_id) != self.name.topic:
            return None
        return broker.partitions.get(self.name)


class Learned(Generic[Shape, Meaning]):
    """Bounded: what is not worth it is not learned."""

    def __init__(self, size_max: int, shapes_max: int = SHAPES_MAX) -> None:
        self._size_max = size_max
        self._shapes_max = shapes_max
        self._known: dict[bytes, Meaning] = {}
        self._shapes: list[Shape] = []
        self._misses = 0

    def __len__(self) -> int:
        return len(self._known)

    def _has_room(self) -> bool:
        """To be asked first: to find out what a request is like costs as much as to read it."""
        return len(self._known) < self._size_max or self._forget()

    def _has_room_for(self, shape: Shape) -> bool:
        if shape not in self._shapes:
            if len(self._shapes) >= self._shapes_max and not self._forget():
                return False
            self._shapes.append(shape)
        return True

    def _forget(self) -> bool:
        """When there is no room: everything, but only after many requests for which it was of no use."""
        self._misses += 1
        if self._misses < _MISSES_PER_PLACE * self._size_max:  # Till then it may not be out of date.
            return False
        self._known.clear()
        self._shapes.clear()
        self._misses = 0
        return True


class BodyShape(Protocol):
    """Of the bodies of one version: their size, and where they differ."""

    @property
    def version(self) -> int: ...

    @property
    def size(self) -> int: ...

    def key(self, body: bytes) -> bytes:
        """The body without what differs."""


SomeShape = TypeVar("SomeShape", bound=BodyShape)


class LearnedBodies(Learned[SomeShape, Meaning]):
    """Of bodies that are of one size but for the numbers in them."""

    def _place(self, version: int, body: bytes) -> tuple[Meaning, SomeShape] | None:
        """What it means, and where it differs from those before it."""
        for shape in self._shapes:
            if shape.size == len(body) and shape.version == version:
                meaning = self._known.get(shape.key(body))
                if meaning is not None:
                    return meaning, shape
        return None

    def _new_key(self, shape: SomeShape, text: bytes, received: bytes) -> bytes | None:
        """Under which to keep what `received` means; None if that can't be.

        `text` is what we write for it, with other numbers: another way of writing the same is not learned.
        """
        if len(received) != shape.size:
            return None
        key = shape.key(received)
        return key if key == shape.key(text) and self._has_room_for(shape) else None
