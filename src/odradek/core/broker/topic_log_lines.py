"""Log lines for topics that are created, extended or deleted: one line each.

The thread that has changed the metadata tree writes them, and only the requesting client waits for it: a request may
create ten thousand topics.
"""

from __future__ import annotations

import logging

from odradek.core.broker.effects import Change, Changed, CreateTopics
from odradek.core.kernel.cluster_view import TopicInfo

_LOG = logging.getLogger(__name__)


def log_topic_change(change: Change, changed: Changed) -> None:
    """Log the result of a change; refusals go only to the client."""
    for name, topic in changed.topics.items():
        if topic is None:
            _LOG.info("topic %s was deleted", name, extra=change.client)
        elif isinstance(change, CreateTopics):
            _log_created(change, topic)
        else:
            _LOG.info("topic %s now has %s", name, _partitions(topic), extra=change.client)


def _log_created(change: CreateTopics, topic: TopicInfo) -> None:
    kind = "internal topic" if topic.is_internal else "topic"
    how = "auto-created" if change.is_auto_created else "created"
    settings = "".join(f", {name}={value}" for name, value in topic.configs.items())
    _LOG.info("%s %s was %s with %s%s", kind, topic.name, how, _partitions(topic), settings, extra=change.client)


def _partitions(topic: TopicInfo) -> str:
    count = len(topic.partitions)
    return f"{count} partition{'' if count == 1 else 's'}"
