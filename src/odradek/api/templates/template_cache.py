"""Templates of a connection's requests of one API, so that similar later requests need not be parsed.

A template (wire/template.py) has the common parts of requests, and its meaning has their parsed content. A template is
made from a parsed request, and only if encoding that request gives the same bytes. Therefore a match is exact.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from odradek.base.units import TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.broker.broker import Broker
from odradek.core.partition.leading import Leading
from odradek.core.partition.partition import Partition
from odradek.wire.request import Request
from odradek.wire.template import NumbersTemplate

Meaning = TypeVar("Meaning")

PARTITIONS_MAX = 32  # Larger requests rarely repeat, so they get no template.
BODY_BYTES_MAX = 2048  # Limit for a request with a template, without its records.
SHAPES_MAX = 8
_MISSES_PER_PLACE = 16


class TemplatePartition:
    """A partition that the requests of a template name."""

    def __init__(self, name: TopicPartition, topic_id: Uuid) -> None:
        """Keep the partition; `topic_id` is zero if the request uses the topic's name."""
        self.name = name
        self.topic_id = topic_id
        self.has_topic_id = topic_id != ZERO_UUID

    def find_leader(self, broker: Broker) -> Leading | None:
        """Return the partition's leader, None if it was deleted or is led elsewhere.

        A recreated topic has another id.
        """
        partition = self.find_replica(broker)
        return None if partition is None else partition.leading

    def find_replica(self, broker: Broker) -> Partition | None:
        """Return this broker's replica, whatever its role."""
        if self.has_topic_id and broker.view.names.get(self.topic_id) != self.name.topic:
            return None
        return broker.partitions.get(self.name)


class Templates(Generic[Meaning]):
    """A bounded cache of templates. Its size, and `size_max`, count partitions."""

    def __init__(self, size_max: int, shapes_max: int) -> None:
        self._size_max = size_max
        self._shapes_max = shapes_max
        self._size = 0
        self._misses = 0
        self._seen: set[Hashable] = set()
        self._given_up: set[Hashable] = set()

    def __len__(self) -> int:
        return self._size

    def make_room(self) -> bool:
        """Return whether a template can be added now, making room if necessary.

        Call this first: checking whether a request can have a template costs as much as parsing it.
        """
        return self._size < self._size_max or self._forget()

    def note(self, kind: Hashable) -> bool:
        """Remember a kind of request; return whether it was known before.

        A request that never repeats gets no template.
        """
        if kind in self._seen:
            return True
        if len(self._seen) >= self._size_max:
            self._seen.clear()
        self._seen.add(kind)
        return False

    def give_up(self, kind: Hashable) -> None:
        """Exclude this kind from templates.

        Its bytes are not our encoding, or too many templates start with the same bytes.
        """
        if len(self._given_up) >= self._size_max:
            self._given_up.clear()
        self._given_up.add(kind)

    def has_given_up(self, kind: Hashable) -> bool:
        """Return whether requests of this kind get no template."""
        return kind in self._given_up

    def _forget(self) -> bool:
        """Drop all templates to make room, but only after many misses; return whether they were dropped."""
        self._misses += 1
        if self._misses < _MISSES_PER_PLACE * self._size_max:  # Until then the templates may still be useful.
            return False
        self._misses = self._size = 0
        self._given_up.clear()
        self._clear()
        return True

    def _clear(self) -> None:
        raise NotImplementedError


class NumbersTemplates(Templates[Meaning]):
    """Templates of requests that differ in some numbers, by the position of these and by all other bytes."""

    def __init__(self, size_max: int, shapes_max: int = SHAPES_MAX) -> None:
        super().__init__(size_max, shapes_max)
        self._shapes: list[tuple[NumbersTemplate, dict[int, Meaning]]] = []

    def match_request(self, request: Request) -> tuple[Meaning, tuple[int, ...]] | None:
        """Return the meaning of a request and its numbers; None if it matches no template."""
        return self.find_body(request.api_version, request.body.tobytes()) if self._shapes else None

    def find_body(self, version: int, body: bytes) -> tuple[Meaning, tuple[int, ...]] | None:
        for template, known in self._shapes:
            if template.size == len(body) and template.version == version:
                meaning = known.get(template.key(body))
                if meaning is not None:
                    return meaning, template.values(body)
        return None

    def learn(self, template: NumbersTemplate, received: bytes, meaning: Meaning, partitions: int = 1) -> bool:
        """Keep the meaning of `received`, from whose parsed body `template` was made.

        Return False, and keep nothing, if `received` is not our encoding of that body.
        """
        if len(received) != template.size or template.key(received) != template.own_key:
            return False
        known = self._of_shape(template)
        if known is not None:
            self._size += 0 if template.own_key in known else partitions
            known[template.own_key] = meaning
        return True

    def _of_shape(self, template: NumbersTemplate) -> dict[int, Meaning] | None:
        for shape, known in self._shapes:
            if shape.is_like(template):
                return known
        if len(self._shapes) >= self._shapes_max and not self._forget():
            return None
        self._shapes.append((template, {}))
        return self._shapes[-1][1]

    def _clear(self) -> None:
        self._shapes.clear()
