"""Waiting for changes of the controller, which other brokers learn of later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.base.errors import ErrorCode
from odradek.client.admin.seen import wait_until_seen
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import ScriptedBroker

pytestmark = pytest.mark.waits


class Late(ScriptedBroker):
    """Responses for topic t: each is returned once, and the last one from then on."""

    def __init__(self, *answers: int | ErrorCode) -> None:
        super().__init__()
        del self.versions[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
        self.answers = list(answers)
        self.on(MetadataRequest, self._late)

    def _late(self, request: MetadataRequest, version: int) -> MetadataResponse:
        self.metadata_requests += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.topics = {"t": answer}
        response = self._metadata(request, version)
        if isinstance(answer, ErrorCode):
            response.topics = [MetadataResponseTopic(error_code=answer, name="t", partitions=[])]
        return response


UNKNOWN, NO_LEADER = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE


@pytest.fixture(
    params=[
        ((UNKNOWN, NO_LEADER, 3), 3, True),
        ((2, 2, 3), 3, True),
        ((3, NO_LEADER, UNKNOWN), 0, True),
        ((UNKNOWN,), 3, False),
        ((3,), 0, False),
        ((ErrorCode.TOPIC_AUTHORIZATION_FAILED, 3), 3, False),
    ],
    ids=str,
)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Late, int, bool]]:
    answers, partitions, is_seen = request.param
    with Late(*answers) as broker:
        yield broker, partitions, is_seen


def test_wait_ends_when_the_change_is_visible(case: tuple[Late, int, bool]) -> None:
    broker, partitions, is_seen = case
    with Cluster(ClientConfig(broker.address, retry_backoff_ms=1, retry_backoff_max_ms=5)) as cluster:
        assert wait_until_seen(cluster, "t", partitions, timeout_ms=30_000 if is_seen else 50) is is_seen
