"""Adoption of topics whose logs another broker wrote.

The data directory is one of Apache Kafka, or was copied without metadata. It contains only logs, and a topic's
configuration decides which records may be deleted. The configuration therefore comes from the metadata log of Apache
Kafka 4, if the directory contains one. Otherwise it is unknown, and nothing is deleted: retention and compaction are
off until somebody configures them, except for the state topics, which have Odradek's configuration.

If Kafka has compacted a topic (cleaner-offset-checkpoint), the topic may no longer be compacted: the entry stays when
cleanup.policy is altered to delete, and old values of keys are the purpose of such a topic. It is therefore only
logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from odradek.app.serve.kraft_topics import KnownTopic, UnreadableMetadata, read_topics
from odradek.base.units import NO_EPOCH, BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import Uuid
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.coordinators import state_topics
from odradek.core.kernel.cluster_view import PartitionInfo, TopicInfo
from odradek.core.partition.storage import FoundTopic
from odradek.core.topics.topic_plans import PARTITIONS_PER_REQUEST_MAX
from odradek.log.files.disk import Disk, DiskFailed
from odradek.log.files.log_file_names import CLEANER_OFFSETS
from odradek.log.segment.checkpoints import BadCheckpoint, read_offsets

log = logging.getLogger(__name__)

NAMED_MAX = 20
# Independent of the broker's defaults, which may differ from those of the broker that wrote the logs.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class Adoption:
    """Knowledge about the topics in data directories, apart from their logs."""

    def __init__(
        self,
        known: Mapping[TopicName, KnownTopic] | None,
        compacted: Iterable[TopicName],
        state_configs: Callable[[TopicName], Mapping[str, str]],
    ) -> None:
        self._known = known
        self._compacted = set(compacted)
        self._state_configs = state_configs

    @classmethod
    def read(cls, disk: Disk, directories: Sequence[Path], configs: BrokerConfigs, broker_id: BrokerId) -> Adoption:
        """Read the metadata and checkpoints in a broker's data directories."""
        known: Mapping[TopicName, KnownTopic] | None = None
        compacted: set[TopicName] = set()
        for directory in directories:
            try:
                known = read_topics(directory, broker_id) if known is None else known
            except UnreadableMetadata as unreadable:
                log.warning("cannot read the metadata log of Apache Kafka, which is ignored: %s", unreadable)
            try:
                compacted |= {name.topic for name in read_offsets(disk, f"{directory}/{CLEANER_OFFSETS}")}
            except (BadCheckpoint, DiskFailed):
                continue  # Reported when the directory is opened.
        return cls(known, compacted, lambda name: state_topics.spec(name, configs).configs)

    def configs(self, name: TopicName) -> Mapping[str, str]:
        """Return the configuration of an adopted topic."""
        if self._known is not None:
            return self._known[name].configs if name in self._known else KEPT
        return self._state_configs(name) or KEPT

    def topics(
        self, found: Mapping[TopicName, FoundTopic], broker_id: BrokerId, new_uuid: Callable[[], Uuid]
    ) -> list[TopicInfo]:
        """Return the topics to adopt. Logs of other topics are quarantined later."""
        counts = {name: self._count(name, one) for name, one in sorted(found.items())}
        return [self._topic(name, count, found[name], broker_id, new_uuid) for name, count in counts.items() if count]

    def _count(self, name: TopicName, found: FoundTopic) -> int:
        """Return the number of partitions of a topic, or 0 if it is not a topic or was deleted."""
        if self._known is not None:
            return len(self._known[name].epochs) if name in self._known else 0
        # A folder may only look like a partition's, for example if its name ends with a date.
        return max((index for index in found.epochs if index < PARTITIONS_PER_REQUEST_MAX), default=-1) + 1

    def _topic(
        self, name: TopicName, count: int, found: FoundTopic, broker_id: BrokerId, new_uuid: Callable[[], Uuid]
    ) -> TopicInfo:
        known = None if self._known is None else self._known[name]
        epochs = {} if known is None else known.epochs
        replicas = (broker_id,)

        def partition(index: int) -> PartitionInfo:
            # Keep the epoch, neither higher nor lower: the broker that wrote the logs may serve them again. Markers
            # carry the leader epoch of the partition of __transaction_state, and Kafka rejects an epoch below the last.
            # After a higher epoch here, that producer's transactions could never end in Kafka.
            epoch = max(LeaderEpoch(0), epochs.get(index, NO_EPOCH), found.epochs.get(index, NO_EPOCH))
            return PartitionInfo(broker_id, epoch, replicas, replicas)

        topic_id = known.id if known is not None else found.id or new_uuid()
        return TopicInfo(name, topic_id, tuple(map(partition, range(count))), self.configs(name))

    def log_adopted(self, adopted: Sequence[TopicInfo], found: Mapping[TopicName, FoundTopic]) -> None:
        """Log the adopted topics and their configuration."""
        if not adopted:
            return
        log.info(
            "added topics found in the data directories to the metadata: %s", format_names(one.name for one in adopted)
        )
        if self._known is None:
            self._warn_unknown_configs(adopted)
        for topic in adopted:
            missing = sorted({*range(len(topic.partitions))} - found[topic.name].epochs.keys())
            if missing:
                text = "topic %s: partitions without a log in the data directories start empty: %s"
                log.warning(text, topic.name, format_names(map(str, missing)))

    def _warn_unknown_configs(self, adopted: Sequence[TopicInfo]) -> None:
        unknown = [topic.name for topic in adopted if topic.configs == KEPT]
        if kept := [name for name in unknown if name not in self._compacted]:
            text = (
                "the configuration of these topics is unknown, so their records are never deleted "
                "(retention.ms=-1) until you configure them with `odradek topic config`: %s"
            )
            log.warning(text, format_names(kept))
        if compacted := [name for name in unknown if name in self._compacted]:
            text = (
                "Apache Kafka has compacted these topics, but their configuration is unknown, so their records are not "
                "deleted or compacted (cleanup.policy=delete, retention.ms=-1) until you run `odradek topic config "
                "TOPIC --set cleanup.policy=compact`: %s"
            )
            log.warning(text, format_names(compacted))


def format_names(names: Iterable[str]) -> str:
    """Return the names on one line, at most NAMED_MAX of them."""
    texts = list(names)
    return ", ".join(texts[:NAMED_MAX]) + (f" and {len(texts) - NAMED_MAX} more" if texts[NAMED_MAX:] else "")
