"""Questions of the test to its own broker: past the sockets, so that no fault hits them, and through dispatch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from odradek.api.call import Peer
from odradek.api.dispatch import dispatch
from odradek.api.outcome import Encoded, Staged
from odradek.app.building import Running
from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import ZERO_UUID
from odradek.core.cluster import INTERNAL_TOPICS, Endpoint
from odradek.core.parked import Parked
from odradek.testing.frames import frame_of
from odradek.wire.client import decode_response, encode_request
from odradek.wire.connection import Connection
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

CREATE_VERSION, DELETE_VERSION = 7, 6
TIMEOUT_MS = 30_000
BROKER_DEFAULT = -1

Answer = TypeVar("Answer")


async def create_topic(running: Running, name: str, partitions: int | None, configs: Mapping[str, str]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=BROKER_DEFAULT if partitions is None else partitions,
        replication_factor=BROKER_DEFAULT,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    (result,) = (await _ask(running, request, CREATE_VERSION, CreateTopicsResponse)).topics
    _check(result.error_code, result.error_message)


async def names(running: Running) -> list[str]:
    """Those that somebody made, without what coordinators keep for themselves."""
    return sorted(running.shell.broker.view.topics.keys() - INTERNAL_TOPICS)


async def delete_topic(running: Running, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=TIMEOUT_MS)
    (result,) = (await _ask(running, request, DELETE_VERSION, DeleteTopicsResponse)).responses
    _check(result.error_code, result.error_message)


def _check(code: int, detail: str | None) -> None:
    if code:
        raise Refused(ErrorCode(code), detail or "")


async def _ask(running: Running, message: object, version: int, answer: type[Answer]) -> Answer:
    """The answer to one request."""
    shell = running.shell
    listener = running.listeners[0]
    peer = Peer(listener.name, Endpoint(listener.name, listener.host, listener.port), None, "the test")
    (request,) = Connection().receive_data(frame_of(encode_request(message, version, 0, "odradek.testing")))
    outcome = dispatch(shell.broker, peer, request, shell.now())
    assert not isinstance(outcome, Staged), "nothing is produced here"
    if isinstance(outcome, Parked):
        waiter = _Waiter(shell.loop.create_future())
        outcome.owner = waiter
        shell.broker.lot.park(outcome)
        shell.settle()
        outcome = await waiter.answer
    return decode_response(answer, version, frame_of(outcome)[4:])[1]


class _Waiter:
    """The owner of a parked request, where a connection would be."""

    def __init__(self, answer: asyncio.Future[Encoded]) -> None:
        self.answer = answer

    def answer_parked(self, parked: Parked[Encoded]) -> None:
        if not self.answer.done():
            self.answer.set_result(parked.then())

    def send(self) -> None:
        """There is no socket."""
