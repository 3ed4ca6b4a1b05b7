"""Interface of planning to a cluster, implemented by spark/kafka.py, and in tests by a few dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.spark.failures import PipelineError


class Topic(NamedTuple):
    name: TopicName
    id: Uuid  # ZERO_UUID if the broker is too old to have ids.
    partitions: tuple[int, ...]


class NoSuchTopic(PipelineError):
    """Error for a topic that does not exist; the text is one sentence that names it."""


class Metadata(Protocol):
    """Cluster metadata. Each call retries for default.api.timeout.ms, then raises a ClientError."""

    def topic_names(self) -> list[str]:
        """Return every topic except internal ones."""

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Return those of `names` that exist; never create a topic."""

    def offsets(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return offsets at EARLIEST, LATEST or a time in ms; LATEST (-1) for a time after the last record."""
