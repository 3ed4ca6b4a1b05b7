"""Requests of a test to its own broker through dispatch, without sockets and unaffected by faults."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from odradek.api.conversation import Conversation, Dispatch
from odradek.api.dispatch import dispatch
from odradek.api.request.call import Peer
from odradek.api.request.gate import Gate, OpenGate
from odradek.api.request.outcome import Encoded
from odradek.app.serve.broker_startup import RunningBroker
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID
from odradek.core.broker.broker import Broker
from odradek.core.kernel.cluster_view import INTERNAL_TOPICS, Endpoint
from odradek.testing.encoded_frames import frame_of
from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.connection import Connection
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.wire.request import Request

CREATE_VERSION, DELETE_VERSION = 7, 6
TIMEOUT_MS = 30_000
BROKER_DEFAULT = -1

Answer = TypeVar("Answer")


async def create_topic(running: RunningBroker, name: str, partitions: int | None, configs: Mapping[str, str]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=BROKER_DEFAULT if partitions is None else partitions,
        replication_factor=BROKER_DEFAULT,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    (result,) = (await _send_request(running, request, CREATE_VERSION, CreateTopicsResponse)).topics
    _check(result.error_code, result.error_message)


async def names(running: RunningBroker) -> list[str]:
    """Return the topics, without the internal topics of coordinators."""
    return sorted(running.shell.broker.view.topics.keys() - INTERNAL_TOPICS)


async def leaders(running: RunningBroker, name: str) -> list[int]:
    return [partition.leader for partition in running.shell.broker.view.topics[TopicName(name)].partitions]


async def delete_topic(running: RunningBroker, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=TIMEOUT_MS)
    (result,) = (await _send_request(running, request, DELETE_VERSION, DeleteTopicsResponse)).responses
    _check(result.error_code, result.error_message)


def _check(code: int, detail: str | None) -> None:
    if code:
        raise Refused(ErrorCode(code), detail or "")


async def _send_request(running: RunningBroker, request: object, version: int, response_class: type[Answer]) -> Answer:
    """Return the answer to one request."""
    shell, listener = running.shell, running.listeners[0]
    peer = Peer(listener.name, Endpoint(listener.name, listener.host, listener.port), None, "the test")
    response: asyncio.Future[Encoded] = shell.loop.create_future()

    def advance() -> None:
        while conversation.step(shell.now(), 0):
            pass
        chunks = conversation.data_to_send()
        if chunks and not response.done():
            response.set_result(chunks)

    conversation = Conversation(_FaultlessHost(shell.broker), peer, Connection(), advance)
    conversation.receive_data(frame_of(encode_request(request, version, 0, "odradek.testing")))
    advance()
    shell.settle()
    return decode_response(response_class, version, frame_of(await response)[4:])[1]


class _FaultlessHost:
    """The host of a conversation that is unaffected by faults."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.gate: Gate = OpenGate()
        self.dispatch: Dispatch = dispatch

    def must_dispatch_each(self, api_key: int) -> bool:
        return False

    def on_answered(self, request: Request, began: float) -> None:
        """Do nothing: requests are not counted."""
