"""Configuration of a channel, and requests to other brokers as values with their outcomes.

A queued request is a RequestBuilder (Kafka's name). When it is written, it becomes a message in a version that both
brokers support. Sending it again builds the message again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from odradek.base.units import MIB
from odradek.wire.client_codec import decode_response
from odradek.wire.schema.primitives import Buffer
from odradek.wire.schema.schema import schema_of

T = TypeVar("T")
SYSTEM_DEFAULT = -1


class SocketSettings(NamedTuple):
    """Response timeout of a channel and receive buffer of its sockets (-1 for the system's default)."""

    timeout_ms: int = 30_000
    receive_buffer_bytes: int = SYSTEM_DEFAULT


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    """Settings of a channel; times are in milliseconds."""

    client_id: str
    retries: bool
    discovers_versions: bool = False  # Otherwise, each request uses the latest version it allows.
    request_timeout_ms: int = 30_000  # request.timeout.ms
    connect_timeout_ms: int = 10_000  # socket.connection.setup.timeout.ms, including the TLS handshake
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000
    in_flight_max: int = 1
    queued_max: int = 10_000
    response_bytes_max: int = 100 * MIB
    receive_buffer_bytes: int = SYSTEM_DEFAULT  # socket.receive.buffer.bytes of this kind of channel

    def __post_init__(self) -> None:
        assert 0 < self.backoff_ms <= self.backoff_ms_max
        assert 0 < self.in_flight_max <= self.queued_max


class FailureReason(Enum):
    """Reason why a request has no response.

    After CANNOT_CONNECT, UNSUPPORTED_VERSION and UNSENDABLE, the broker has not received the request; after the others
    it may have.
    """

    CANNOT_CONNECT = "cannot connect"
    CONNECTION_LOST = "connection lost"
    TIMED_OUT = "timed out"
    INVALID_RESPONSE = "invalid response"  # The connection is closed because nothing after it can be trusted.
    UNSUPPORTED_VERSION = "unsupported version"  # The broker has no version of this API that the request allows.
    UNSENDABLE = "unsendable"  # The message cannot be built, or contains values that its version cannot carry.
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """Outcome of a request without a response; `text` is for a log line."""

    reason: FailureReason
    text: str


class UnsupportedVersion(ValueError):
    """Raised if the broker supports no version that the request allows; the text names both ranges."""


@dataclass(frozen=True, slots=True)
class RequestBuilder(Generic[T]):
    """A request as a value; `build` makes the message for the version in which it is sent."""

    request: type[object]
    response: type[T]
    build: Callable[[int], object]
    oldest_allowed: int
    latest_allowed: int

    @classmethod
    def of(cls, message: object, response: type[T], version: int | None = None) -> RequestBuilder[T]:
        """Return the builder of a message that is the same in each version; None allows all versions."""
        versions = schema_of(type(message)).versions
        oldest, latest = (versions[0], versions[-1]) if version is None else (version, version)
        return cls(type(message), response, lambda _: message, oldest, latest)

    @property
    def api_key(self) -> int:
        api_key = schema_of(self.request).api_key
        assert api_key is not None, "only request messages have an API key"
        return api_key

    def version_for(self, supported: range | None) -> int:
        """Return the highest version that is allowed and among `supported`.  Raises UnsupportedVersion."""
        if supported:
            version = min(self.latest_allowed, supported[-1])
            if version >= max(self.oldest_allowed, supported[0]):
                return version
        name = schema_of(self.request).name.removesuffix("Request")
        supported_text = (
            f"supports {name} versions {supported[0]} to {supported[-1]}" if supported else f"does not support {name}"
        )
        raise UnsupportedVersion(
            f"the broker {supported_text}; versions {self.oldest_allowed} to {self.latest_allowed} are required"
        )


class PendingRequest(Generic[T]):
    """A request of a channel until `then` has been called with its outcome."""

    __slots__ = ("builder", "correlation_id", "deadline", "outcome", "then", "version")

    def __init__(self, builder: RequestBuilder[T], then: Callable[[T | FailedRequest], None]) -> None:
        self.builder = builder
        self.then = then
        self.version = self.correlation_id = -1  # These three fields describe the last time the request was written.
        self.deadline = 0.0  # In seconds of the loop's clock.
        self.outcome: T | FailedRequest | None = None

    def decode(self, frame: Buffer) -> None:
        """Set the outcome to the response in `frame`.  Raises Malformed."""
        _, self.outcome = decode_response(self.builder.response, self.version, frame)

    def complete(self) -> None:
        """Call `then`, which may raise any exception."""
        assert self.outcome is not None, "a request completes with an outcome"
        self.then(self.outcome)
