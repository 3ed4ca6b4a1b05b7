"""Common code of the APIs that change topics: the wait until the metadata tree has the change."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.broker.effects import Change, Changed
from odradek.core.kernel.cluster_view import TopicInfo


class DelayedTopicChange:
    """The condition that one change has ended, with its result."""

    def __init__(self, change: Change) -> None:
        self.keys = (change.token,)
        self._end: Changed | None = None

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        assert isinstance(news, Changed)
        self._end = news
        return True

    def refusal(self, topic: TopicName) -> Refused | None:
        """Return why the topic was not changed; None if it was."""
        if self._end is None:
            return Refused(ErrorCode.REQUEST_TIMED_OUT, "the change did not complete in time and may still complete")
        return self._end.refused.get(topic)

    def topic(self, topic: TopicName) -> TopicInfo | None:
        """Return the topic as it is after the change."""
        return self._end.topics.get(topic) if self._end else None


def find_duplicates(names: Iterable[str]) -> Parts[set[str]]:
    seen: set[str] = set()
    duplicates: set[str] = set()
    for number, name in enumerate(names, 1):
        if name in seen:
            duplicates.add(name)
        seen.add(name)
        if not number % CHEAP:
            yield
    return duplicates
