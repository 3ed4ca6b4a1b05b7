"""Changes of topics and configurations that this broker requests from the metadata tree.

Each change has a token of its own:

    request_change ──> Change, an effect ──> the metadata tree ──> Changed: its requests are completed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.broker.effects import AlterConfigs, Change, CreateTopics
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.coordinators import state_topics
from odradek.core.kernel.cluster_view import ClusterView, TopicInfo
from odradek.core.topics.topic_plans import Planner

SomeChange = TypeVar("SomeChange", bound=Change | AlterConfigs)


class MetadataChangeRequests:
    """Requested changes of one broker."""

    def __init__(self, planner: Planner, configs: BrokerConfigs, view: ClusterView) -> None:
        self._planner = planner
        self._configs = configs
        self._view = view
        self._pending: list[Change | AlterConfigs] = []  # The shell has not taken them yet.
        self._creations: dict[TopicName, Change] = {}  # Requested state topics.
        self._tokens = 0

    def request_change(self, make: Callable[[int], SomeChange]) -> SomeChange:
        """Request a change; `make` receives the token of its end."""
        self._tokens += 1
        change = make(self._tokens)
        assert change.token == self._tokens, "each change has a token of its own"
        self._pending.append(change)
        return change

    def state_topic(self, name: TopicName) -> Change | None:
        """Return the change that creates a state topic; None if the topic exists.

        Raises Refused(COORDINATOR_NOT_AVAILABLE) if too few brokers live to create it, or if its znode cannot be read.
        """
        if name in self._view.topics:
            return None
        if name in self._view.unreadable:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._view.unreadable[name])
        creation = self._creations.get(name)
        if creation is None:
            topic = self._plan(name)
            creation = self._creations[name] = self.request_change(lambda token: CreateTopics(token, (topic,)))
        return creation

    def _plan(self, name: TopicName) -> TopicInfo:
        try:
            return self._planner.new_topic(state_topics.spec(name, self._configs), self._view)
        except Refused as refused:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"failed to create topic {name}: {refused.detail}"
            ) from refused

    def on_change_completed(self, token: int) -> None:
        """Complete a change: a state topic that it did not create may be requested again."""
        for name in [name for name, change in self._creations.items() if change.token == token]:
            del self._creations[name]

    @property
    def has_pending(self) -> bool:
        """Return whether the shell has not taken all changes yet."""
        return bool(self._pending)

    def take_changes(self) -> list[Change | AlterConfigs]:
        taken, self._pending = self._pending, []
        return taken
