"""Makes new partitions' files beside the loop: a busy file system takes milliseconds for each of a thousand names."""

from __future__ import annotations

from contextlib import suppress

from odradek.base.errors import Refused
from odradek.base.units import TimestampMs, TopicPartition
from odradek.base.uuids import ZERO_UUID
from odradek.core.broker import Broker
from odradek.core.cluster import TopicInfo
from odradek.core.controller.requests import BecomeLeaderOrFollower
from odradek.core.effects import Changed
from odradek.core.metadata_update import Overrides
from odradek.log.checkpoints import BadCheckpoint
from odradek.log.disk import DiskFailed


def make_logs(broker: Broker, changed: Changed, now: TimestampMs) -> Changed:
    """Makes the files of new partitions, in the thread that has changed the metadata tree.  Returns `changed`.

    It only reads from the broker; `Broker.changing`, which follows, tries again what fails here, and tells of it.
    """
    for topic in changed.topics.values():
        if topic is not None:
            with suppress(DiskFailed, BadCheckpoint):
                _make(broker, topic, now)
    return changed


def _make(broker: Broker, topic: TopicInfo, now: TimestampMs) -> None:
    configs = broker.configs.for_topic(topic.configs)
    for index, info in enumerate(topic.partitions):
        if broker.id in info.replicas:
            broker.storage.make(TopicPartition(topic.name, index), topic.id, configs, now)


def make_replicas(broker: Broker, asked: BecomeLeaderOrFollower, overrides: Overrides, now: TimestampMs) -> None:
    """Makes the files of new replicas, before `Broker.told`, which tries again what fails here, and tells of it."""
    topics = broker.view.topics
    for name, assigned in asked.partitions.items():
        if assigned.is_new and broker.id in assigned.replicas:
            known = topics.get(name.topic)
            configs = broker.configs.for_topic(overrides.get(name.topic, {}) if known is None else known.configs)
            with suppress(DiskFailed, BadCheckpoint, Refused):
                broker.storage.make(name, asked.topic_ids.get(name.topic, ZERO_UUID), configs, now)
