"""The interface through which planning asks about a cluster: spark/kafka.py has it, and in tests a few dicts do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.spark.failures import PipelineError


class Topic(NamedTuple):
    name: TopicName
    id: Uuid  # ZERO_UUID where the broker is too old to have ids.
    partitions: tuple[int, ...]


class NoSuchTopic(PipelineError):
    """Raised for a topic that does not exist; the text is one sentence that names it."""


class Metadata(Protocol):
    """Answers questions about a cluster; each call retries for default.api.timeout.ms, then raises a ClientError."""

    def topic_names(self) -> list[str]:
        """Returns every topic but the internal ones."""

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Returns those of `names` that exist; never creates a topic."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns offsets at EARLIEST, LATEST or a time in ms; LATEST (-1) for a time after the last record."""
