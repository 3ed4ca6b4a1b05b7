"""Changes of topics and configurations that this broker asks of the metadata tree, each under a token of its own.

ask ──> Change, an effect ──> the metadata tree ──> Broker.shown: who waits for the token is told
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


class Changes:
    """The changes of one broker that are asked for."""

    def __init__(self, planner: Planner, configs: BrokerConfigs, view: ClusterView) -> None:
        self._planner = planner
        self._configs = configs
        self._view = view
        self._asked: list[Change | AlterConfigs] = []  # The shell has not taken them yet.
        self._making: dict[TopicName, Change] = {}  # State topics that were asked for.
        self._tokens = 0

    def ask(self, make: Callable[[int], SomeChange]) -> SomeChange:
        """Asks for a change; `make` gets the token under which its end will be told."""
        self._tokens += 1
        change = make(self._tokens)
        self._asked.append(change)
        return change

    def state_topic(self, name: TopicName) -> Change | None:
        """Returns the change that makes a state topic; None if it is there.

        Raises Refused(COORDINATOR_NOT_AVAILABLE) if it can't be made: too few brokers live, or its znode can't be read.
        """
        if name in self._view.topics:
            return None
        if name in self._view.unreadable:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._view.unreadable[name])
        making = self._making.get(name)
        if making is None:
            topic = self._planned(name)
            making = self._making[name] = self.ask(lambda token: CreateTopics(token, (topic,)))
        return making

    def _planned(self, name: TopicName) -> TopicInfo:
        try:
            return self._planner.new_topic(state_topics.spec(name, self._configs), self._view)
        except Refused as refused:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} can't be made: {refused.detail}") from refused

    def ended(self, token: int) -> None:
        """Takes in that a change has ended: a state topic that it did not make may be asked for again."""
        for name in [name for name, change in self._making.items() if change.token == token]:
            del self._making[name]

    @property
    def are_asked(self) -> bool:
        """True if the shell has not taken all of them yet."""
        return bool(self._asked)

    def take(self) -> list[Change | AlterConfigs]:
        asked, self._asked = self._asked, []
        return asked
