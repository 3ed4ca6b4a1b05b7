"""Largest requests of each API: no callback takes the loop for more than 20 ms of its thread's processor time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.api.table import BY_KEY
from odradek.base.uuids import Uuid
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.schema.api_keys import ApiKey
from support.asking import created
from support.largest import Known, largest, ways
from support.loop_time import hold_ms_allowed, hold_ms_max
from support.raw_client import RawClient, frame
from support.timed_serve import TimedServing

TOPIC, PARTITIONS = "t", 100
TRIES = 5  # A slow request is slow in each try; a garbage collection is not.


class Timed(NamedTuple):
    """One broker for all tests, with timed callbacks."""

    serving: TimedServing
    client: RawClient
    known: Known

    def longest(self, request: bytes) -> tuple[float, str]:
        """Return the longest time on the loop, in ms, and its callback."""
        self.serving.begin()
        self.client.send(request)
        assert self.client.read_frame()
        holds = self.serving.holds()
        return (holds[0].ms, str(holds[0])) if holds else (0, "")


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Timed]:
    directory: Path = tmp_path_factory.mktemp("largest")
    with TimedServing(directory) as serving, RawClient(serving.port) as client:
        created(client, TOPIC, partitions=PARTITIONS)
        for kind in range(2):
            client.request(FindCoordinatorRequest(key="tx", key_type=kind), 3, FindCoordinatorResponse)
        topics = [MetadataRequestTopic(name=TOPIC)]
        (topic,) = client.request(MetadataRequest(topics=topics), 12, MetadataResponse).topics
        known = Known(TOPIC, Uuid(topic.topic_id), PARTITIONS, _producer_id(client))
        yield Timed(serving, client, known)


def _producer_id(client: RawClient) -> int:
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=600_000)
    while True:
        answer = client.request(request, 3, InitProducerIdResponse)
        if not answer.error_code:
            return answer.producer_id
        time.sleep(0.05)


def test_each_api_has_a_largest_request() -> None:
    assert {key for key, _ in ways()} == set(BY_KEY)


@pytest.mark.share(4)
@pytest.mark.parametrize(("key", "name"), ways(), ids=lambda one: one.title if isinstance(one, ApiKey) else one)
def test_the_largest_request_does_not_block_the_loop(timed: Timed, key: ApiKey, name: str) -> None:
    message, version = largest(timed.known, key, name)
    request = frame(message, version)
    tries: list[tuple[float, str]] = []
    for _ in range(TRIES):
        tries.append(timed.longest(request))
        if tries[-1][0] <= hold_ms_max():
            return
    ms, what = min(tries)
    assert ms <= hold_ms_allowed(ms), what
