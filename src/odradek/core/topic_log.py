"""What the broker's log says of topics that are made, grown and deleted: a line for each.

The lines are written by the thread that has changed the metadata tree, which nobody waits for but who asked: a request
may make ten thousand topics.
"""

from __future__ import annotations

import logging

from odradek.core.cluster import TopicInfo
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.effects import Change, Changed, CreateTopics

_LOG = logging.getLogger(__name__)


def tell(change: Change, changed: Changed, configs: BrokerConfigs) -> None:
    """Logs what has become of a change; what was refused is told to whoever asked for it."""
    for name, topic in changed.topics.items():
        if topic is None:
            _LOG.info("topic %s was deleted", name, extra=change.asker)
        elif isinstance(change, CreateTopics):
            _tell_created(change, topic, configs)
        else:
            _LOG.info("topic %s has %s now", name, _partitions(topic), extra=change.asker)


def _tell_created(change: CreateTopics, topic: TopicInfo, configs: BrokerConfigs) -> None:
    kind = "internal topic" if topic.is_internal else "topic"
    how = "auto-created" if change.on_sight else "created"
    settings = "".join(f", {name}={value}" for name, value in topic.configs.items())
    _LOG.info("%s %s was %s with %s%s", kind, topic.name, how, _partitions(topic), settings, extra=change.asker)
    policy = configs.for_topic(topic.configs).cleanup_policy
    if "compact" in policy and not topic.is_internal:
        _LOG.warning("topic %s: %s", topic.name, not_compacted("cleanup.policy", policy), extra=change.asker)


def not_compacted(key: str, policy: tuple[str, ...]) -> str:
    """Returns the sentence about a cleanup policy with `compact`: what happens instead."""
    instead = "segments are only deleted, by retention" if "delete" in policy else "every record is kept for ever"
    return f"{key} is {','.join(policy)}, but nothing is compacted yet: {instead}"


def _partitions(topic: TopicInfo) -> str:
    count = len(topic.partitions)
    return f"{count} partition{'' if count == 1 else 's'}"
