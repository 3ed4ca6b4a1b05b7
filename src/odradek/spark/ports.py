"""What planning and resolving need to know of a cluster; spark/kafka.py answers it, and in tests a few dicts do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import Uuid


class Topic(NamedTuple):
    name: TopicName
    id: Uuid  # ZERO_UUID where the broker is too old to have ids.
    partitions: tuple[int, ...]


class NoSuchTopic(Exception):
    """The text is one sentence that names it."""


class Metadata(Protocol):
    """Blocking.  Each call retries what is retriable for default.api.timeout.ms, then raises a ClientError."""

    def topic_names(self) -> list[str]:
        """Every topic but the internal ones."""

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Those of `names` that exist.  Never creates a topic."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """By EARLIEST, LATEST or a time in milliseconds; LATEST (-1) for a time after the last record."""
