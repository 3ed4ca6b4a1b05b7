"""A broker with scripted responses, over a real socket: for responses that a healthy broker never sends.

    with ScriptedBroker() as broker:
        broker.on(FetchRequest, lambda request, version: FetchResponse(...))

ApiVersions and Metadata have default handlers; `topics` and `leader` determine the response to Metadata.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from odradek.base.errors import ErrorCode
from odradek.base.uuids import Uuid
from odradek.wire.catalog import APIS
from odradek.wire.connection import Connection
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.compile import decode
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.schema import schema_of
from support.ports import free_port

Handler = Callable[[Any, int], object]


class HangUp(Exception):
    """Raised by a handler: the broker closes the connection instead of answering."""


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\0")[:16])


def hang_up(stream: socket.socket) -> None:
    """Read the rest before closing: closing with unread requests would sometimes reset the connection."""
    stream.shutdown(socket.SHUT_WR)
    while stream.recv(1 << 20):
        pass


def shut(stream: socket.socket) -> None:
    with suppress(OSError):  # It was closed already.
        stream.shutdown(socket.SHUT_RDWR)


class ScriptedBroker:
    """Broker 1 of a single-broker cluster. `seen` are the received requests except ApiVersions and Metadata."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {"t": 1}
        self.topic_ids: dict[str, Uuid] = {}
        self.leader = 1
        self.versions: dict[int, tuple[int, int]] = {
            key: (schema_of(cls).versions[0], schema_of(cls).versions[-1]) for key, (cls, _) in APIS.items()
        }
        self.seen: list[Any] = []
        self.metadata_requests = 0
        self._handlers: dict[type, Handler] = {MetadataRequest: self._metadata, ApiVersionsRequest: self._api_versions}
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self._connections: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def on(self, request: type, handler: Handler) -> None:
        self._handlers[request] = handler

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shut(self._listener)  # Wakes the blocked accept(); close() alone would not.
        self._listener.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        for connection in self._connections:
            shut(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        connection = Connection()
        with stream, suppress(OSError):
            try:
                while data := stream.recv(1 << 20):
                    for request in connection.receive_data(data):
                        self._answer(connection, request)
                    for chunk in connection.data_to_send():
                        assert isinstance(chunk, bytes)
                        stream.sendall(chunk)
            except (HangUp, Malformed):
                hang_up(stream)

    def _answer(self, connection: Connection, request: Request) -> None:
        cls, _ = APIS[ApiKey(request.api_key)]
        lowest, highest = self.versions[request.api_key]
        if cls is ApiVersionsRequest and not lowest <= request.api_version <= highest:
            request.api_version = 0  # KIP-511: the response to an unknown version of ApiVersions has version 0.
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
            connection.answer(request, encode_response(request, refusal))
            return
        message: object = decode(cls, request.api_version, bytes(request.body))
        if cls not in (ApiVersionsRequest, MetadataRequest):
            self.seen.append(message)
        answer = self._handlers[cls](message, request.api_version)
        connection.answer(request, None if answer is None else encode_response(request, answer))

    def _api_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        apis = [ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in self.versions.items()]
        return ApiVersionsResponse(error_code=0, api_keys=apis)

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        self.metadata_requests += 1
        names = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="scripted",
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[])
        return MetadataResponseTopic(
            error_code=0,
            name=name,
            topic_id=self.topic_ids.get(name, topic_id(name)),
            partitions=[
                MetadataResponsePartition(
                    error_code=0, partition_index=index, leader_id=self.leader, replica_nodes=[1], isr_nodes=[1]
                )
                for index in range(self.topics[name])
            ],
        )
