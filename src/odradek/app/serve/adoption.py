"""Takes over topics whose logs another broker wrote: a data directory of Apache Kafka, or one copied without metadata.

Only logs lie there, and how a topic is configured decides what may be deleted of it.  So the configuration comes from
the metadata log of Apache Kafka 4 where that lies beside the logs.  Otherwise nothing says it, and nothing is deleted:
there is neither retention nor compaction until somebody sets it, but for the state topics, which are as they are here.

That Kafka has compacted a topic (cleaner-offset-checkpoint) does not say that it still does: the entry stays when
cleanup.policy is altered to delete, and old values of keys are what such a topic is for.  So it is only told.
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
# Whatever the broker's defaults are: they need not have been those of the broker that wrote the logs.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class Adoption:
    """What is known of topics that lie in data directories, beside their logs."""

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
        """Reads what lies in a broker's data directories."""
        known: Mapping[TopicName, KnownTopic] | None = None
        compacted: set[TopicName] = set()
        for directory in directories:
            try:
                known = read_topics(directory, broker_id) if known is None else known
            except UnreadableMetadata as unreadable:
                log.warning("the metadata log of Apache Kafka can't be read, and counts as missing: %s", unreadable)
            try:
                compacted |= {name.topic for name in read_offsets(disk, f"{directory}/{CLEANER_OFFSETS}")}
            except (BadCheckpoint, DiskFailed):
                continue  # Who opens the directory reports it.
        return cls(known, compacted, lambda name: state_topics.spec(name, configs).configs)

    def configs(self, name: TopicName) -> Mapping[str, str]:
        """Returns the configuration that a topic gets."""
        if self._known is not None:
            return self._known[name].configs if name in self._known else KEPT
        return self._state_configs(name) or KEPT

    def topics(
        self, found: Mapping[TopicName, FoundTopic], broker_id: BrokerId, new_uuid: Callable[[], Uuid]
    ) -> list[TopicInfo]:
        """Returns the topics to take over; a log that is of none of them will be set aside."""
        counts = {name: self._count(name, one) for name, one in sorted(found.items())}
        return [self._topic(name, count, found[name], broker_id, new_uuid) for name, count in counts.items() if count]

    def _count(self, name: TopicName, found: FoundTopic) -> int:
        """Returns how many partitions a topic has; 0 if it is none, or was deleted."""
        if self._known is not None:
            return len(self._known[name].epochs) if name in self._known else 0
        # A folder may only be named like a partition's, with a date for example.
        return max((index for index in found.epochs if index < PARTITIONS_PER_REQUEST_MAX), default=-1) + 1

    def _topic(
        self, name: TopicName, count: int, found: FoundTopic, broker_id: BrokerId, new_uuid: Callable[[], Uuid]
    ) -> TopicInfo:
        known = None if self._known is None else self._known[name]
        epochs = {} if known is None else known.epochs
        ours = (broker_id,)

        def partition(index: int) -> PartitionInfo:
            # The epoch goes on as it was, neither above nor below: who wrote the logs may serve them again.
            # Markers carry the leader epoch of the partition of __transaction_state, and Kafka rejects one below the
            # last. With a higher epoch here, that producer's transactions could never end again in Kafka.
            epoch = max(LeaderEpoch(0), epochs.get(index, NO_EPOCH), found.epochs.get(index, NO_EPOCH))
            return PartitionInfo(broker_id, epoch, ours, ours)

        topic_id = known.id if known is not None else found.id or new_uuid()
        return TopicInfo(name, topic_id, tuple(map(partition, range(count))), self.configs(name))

    def tell(self, adopted: Sequence[TopicInfo], found: Mapping[TopicName, FoundTopic]) -> None:
        """Says in the broker's log which topics were taken over, and how they are configured."""
        if not adopted:
            return
        log.info(
            "topics found in the data directories, and added to the metadata: %s", named(one.name for one in adopted)
        )
        if self._known is None:
            self._tell_guesses(adopted)
        for topic in adopted:
            missing = sorted({*range(len(topic.partitions))} - found[topic.name].epochs.keys())
            if missing:
                text = "%s has partitions that are in none of the data directories, and they begin empty: %s"
                log.warning(text, topic.name, named(map(str, missing)))

    def _tell_guesses(self, adopted: Sequence[TopicInfo]) -> None:
        unsaid = [topic.name for topic in adopted if topic.configs == KEPT]
        if kept := [name for name in unsaid if name not in self._compacted]:
            text = (
                "nothing here says how these topics were configured, so nothing of them is ever deleted "
                "(retention.ms=-1) until `odradek topic config` sets what they need: %s"
            )
            log.warning(text, named(kept))
        if compacted := [name for name in unsaid if name in self._compacted]:
            text = (
                "Apache Kafka has compacted these topics, and nothing here says whether it still would, so nothing of "
                "them is deleted or compacted (cleanup.policy=delete, retention.ms=-1) until `odradek topic config "
                "TOPIC --set cleanup.policy=compact` has one compacted again: %s"
            )
            log.warning(text, named(compacted))


def named(names: Iterable[str]) -> str:
    """Returns the names in a line, or the first of very many."""
    texts = list(names)
    return ", ".join(texts[:NAMED_MAX]) + (f" and {len(texts) - NAMED_MAX} more" if texts[NAMED_MAX:] else "")
