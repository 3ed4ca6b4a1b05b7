"""A client that creates the topics, and retries until they exist."""

from __future__ import annotations

from odradek.base.errors import ErrorCode
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sim.simclients import SimClient

CREATED_OR_EXISTING = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class SimAdmin(SimClient):
    """The client that creates topics; done when all topics of the world exist."""

    _is_done = False

    @property
    def is_done(self) -> bool:
        return self._is_done

    def pump(self) -> None:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in self.environment.topic_configs.items()]
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=configs)
            for name, count in self.environment.topics.items()
        ]
        self.link.send_request(
            CreateTopicsRequest(topics=topics, timeout_ms=5_000), 5, CreateTopicsResponse, self._answered
        )

    def _answered(self, answer: CreateTopicsResponse | None) -> None:
        codes = [] if answer is None else [ErrorCode(topic.error_code) for topic in answer.topics]
        self.add_event("topics", " ".join(code.name for code in codes) or "no answer")
        if codes and all(code in CREATED_OR_EXISTING for code in codes):
            self._is_done = True
            self.link.leave()
        else:
            self.again()
