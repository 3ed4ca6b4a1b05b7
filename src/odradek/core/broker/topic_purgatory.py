"""Changes in the metadata tree whose requests wait until they have reached this broker.

The controller reads a change in the tree and notifies all brokers.  A change that a client knows to be done is thus
visible to it.  Modeled on Kafka's TopicPurgatory (DelayedCreatePartitions, DelayedDeleteTopics).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.units import MINUTE_MS, TopicName
from odradek.core.broker.effects import Change, Changed, CreateTopics, DeleteTopics
from odradek.core.kernel.cluster_view import ClusterView, TopicInfo

AWAITED_MS_MAX = MINUTE_MS  # The client has its answer by then, and another change may have undone this one.


class PendingTopicChange(NamedTuple):
    """One change; `any_id` if another broker created the topics and assigned their ids."""

    change: Change
    changed: Changed
    until: int  # On the steady clock, in ms.
    any_id: bool


class TopicPurgatory:
    """Awaited changes of one broker."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._awaited: list[PendingTopicChange] = []

    @property
    def has_any(self) -> bool:
        return bool(self._awaited)

    def add(self, change: Change, changed: Changed, now: int, *, any_id: bool = False) -> None:
        """Wait until the view contains the change; `now` is the steady clock, in ms."""
        assert change.token == changed.token
        self._awaited.append(PendingTopicChange(change, changed, now + AWAITED_MS_MAX, any_id))

    def take_completed(self, now: int) -> list[Changed]:
        """Return the changes that the view contains by now, with its topics, and those that timed out."""
        if not self._awaited:
            return []
        awaited, self._awaited = self._awaited, []
        ended: list[Changed] = []
        for one in awaited:
            if self._is_visible(one) or one.until <= now:
                topics = {name: self._view.topics.get(name) for name in one.changed.topics}
                ended.append(one.changed._replace(topics=topics))
            else:
                self._awaited.append(one)
        return ended

    def _is_visible(self, awaited: PendingTopicChange) -> bool:
        return all(self._has(awaited, name, topic) for name, topic in awaited.changed.topics.items())

    def _has(self, awaited: PendingTopicChange, name: TopicName, topic: TopicInfo | None) -> bool:
        known = self._view.topics.get(name)
        if isinstance(awaited.change, DeleteTopics):
            return known is None or known.id != awaited.change.topics[name]
        assert topic is not None, "a created or extended topic exists"
        if known is None or len(known.partitions) < len(topic.partitions):
            return False
        is_other = isinstance(awaited.change, CreateTopics) and known.id != topic.id
        return (awaited.any_id or not is_other) and all(one.leader_epoch >= 0 for one in known.partitions)
