"""One connection to one broker, with requests and answers in the same order.

    send(request) -> Pending      any number may be outstanding (pipelining)
    Pending.result()              receives answers until this one has arrived

The first exchange is ApiVersions (KIP-35, KIP-511). Later requests use the newest version that both sides know. The
socket never blocks; every wait is a poll with a deadline. If a peer is silent past the deadline, the connection is
closed, because a late answer would be taken for the answer to the next request.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Generic, TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import MIB
from odradek.client.connection.client_config import Address, ClientConfig
from odradek.client.connection.client_errors import (
    ClientError,
    ConnectionLost,
    KafkaUnavailable,
    NotKafka,
    TlsRefused,
    Unsendable,
    response_error,
)
from odradek.client.connection.frame_buffers import FrameBuffers
from odradek.client.connection.versions import ApiRange, version_for
from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Chunk

if TYPE_CHECKING:
    from odradek.client.connection.socket_streams import SecureStream

T = TypeVar("T")

# A larger answer to ApiVersions does not come from Kafka; "HTTP" read as a length is 1.2 GB.
FIRST_RESPONSE_BYTES_MAX = 1 * MIB
SOFTWARE_NAME = "odradek"

_LENGTH = Struct(">i")
_ERROR_CODE = Struct(">h")


class PendingResponse:
    """A pending answer of any type."""

    __slots__ = ("correlation_id", "deadline", "frame", "lost")

    def __init__(self, correlation_id: int, deadline: float) -> None:
        self.correlation_id = correlation_id
        self.deadline = deadline
        self.frame: memoryview | None = None
        self.lost: ClientError | None = None


class Pending(PendingResponse, Generic[T]):
    """A pending answer of type T."""

    __slots__ = ("_connection", "_response", "version")

    def __init__(
        self, connection: Connection, response: type[T], version: int, correlation_id: int, deadline: float
    ) -> None:
        super().__init__(correlation_id, deadline)
        self._connection = connection
        self._response = response
        self.version = version

    def result(self) -> T:
        """Wait for the answer and return it; call this only once.

        Raise ConnectionLost after a disconnect or the deadline, TlsRefused, or NotKafka for invalid data.
        """
        while self.frame is None:
            if self.lost is not None:
                raise self.lost
            self._connection.receive(self.deadline)
        frame, self.frame = self.frame, None
        try:
            _, message = decode_response(self._response, self.version, frame)
        except Malformed as malformed:
            raise self._connection.not_kafka(f"sent an invalid {self._response.__name__}: {malformed}") from malformed
        return message


class Connection:
    """A connected and negotiated connection to a broker.

    Under TLS the broker's certificate must contain `host_name`, by default the host of the address.

    The constructor raises KafkaUnavailable, NotKafka, TlsRefused, and ConfigurationError for unreadable certificates.
    """

    def __init__(self, address: Address, config: ClientConfig, host_name: str | None = None) -> None:
        self.where = format_address((host_name or address[0], address[1]))
        self._config = config
        self._correlation_id = 0
        self._pending: deque[PendingResponse] = deque()
        self._frames = FrameBuffers()
        self._frame_bytes_max = FIRST_RESPONSE_BYTES_MAX
        self._secure = open_tls_stream(address, config, self.where, host_name) if config.tls is not None else None
        self._socket = self._secure or connect(address, config.connect_timeout_ms)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        # Finalized features of the cluster (KIP-584), for example transaction.version.
        self.features: dict[str, int] = {}
        try:
            self.apis = self._negotiate()
        except BaseException:
            self.close()
            raise
        self._frame_bytes_max = config.response_bytes_max

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def tls_version(self) -> str | None:
        """Return the TLS version, for example TLSv1.3, or None in plain text."""
        return None if self._secure is None else self._secure.version

    @property
    def has_received(self) -> bool:
        """Return whether there is data to receive that poll() does not report."""
        return self._secure is not None and self._secure.has_received

    def version(self, request: type[object]) -> int:
        """Return the newest version of this request that both sides know; raise Unsupported if there is none."""
        return version_for(request, self.apis, self.where)

    def send(
        self,
        request: object,
        response: type[T],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
        is_answered: bool = True,
    ) -> Pending[T]:
        """Send a request without waiting for the answer.

        timeout_ms counts from now and defaults to request_timeout_ms. Raise Unsendable, and UnicodeEncodeError for text
        with an unpaired surrogate.
        """
        if version is None:
            version = self.version(type(request))
        timeout_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        chunks = _encode(request, version, self._correlation_id, self._config.client_id)
        pending = Pending(self, response, version, self._correlation_id, deadline)
        try:
            self._transmit(chunks, deadline)
        except BaseException:
            self.close()  # For example after Ctrl-C: the next request would be taken for the rest of this one.
            raise
        if is_answered:
            self._pending.append(pending)
        return pending

    def call(
        self, request: object, response: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        """Send a request and wait for the answer."""
        return self.send(request, response, version=version, timeout_ms=timeout_ms).result()

    def receive(self, deadline: float) -> None:
        """Receive one complete answer and pass it to its request."""
        try:
            self._receive(deadline)
        except BaseException:
            self.close()  # For example after Ctrl-C: the rest of this answer would be taken for the next one.
            raise

    def _receive(self, deadline: float) -> None:
        header = memoryview(bytearray(_LENGTH.size))
        self._fill(header, deadline)
        (size,) = _LENGTH.unpack(header)
        if not 4 <= size <= self._frame_bytes_max:
            raise self.not_kafka(f"sent a response with an invalid size of {size} bytes")
        frame = self._frames.claim_buffer(size)
        self._fill(frame, deadline)
        (correlation_id,) = _LENGTH.unpack_from(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise self.not_kafka(
                f"sent a response with correlation id {correlation_id}, which does not match the oldest request"
            )
        self._pending.popleft().frame = frame

    def close(self) -> None:
        self._fail(ConnectionLost(f"the connection to {self.where} is closed"))

    # Socket work.

    def _transmit(self, chunks: Sequence[Chunk], deadline: float) -> None:
        for chunk in chunks:
            assert isinstance(chunk, bytes | bytearray | memoryview), "a request contains no file chunks"
            view = memoryview(chunk)
            while view:
                try:
                    view = view[self._socket.send(view) :]
                except BlockingIOError as full:
                    self._wait(getattr(full, "events", select.POLLOUT), deadline)
                except OSError as error:
                    raise self._connection_lost(reason_of(error)) from error
                except TlsRefused as refused:
                    self._fail(refused)
                    raise

    def _fill(self, view: memoryview, deadline: float) -> None:
        while view:
            try:
                received = self._socket.recv_into(view)
            except BlockingIOError as empty:
                self._wait(getattr(empty, "events", select.POLLIN), deadline)
                continue
            except OSError as error:
                raise self._connection_lost(reason_of(error)) from error
            except TlsRefused as refused:
                self._fail(refused)
                raise
            if not received:
                raise self._connection_lost("the broker closed the connection")
            view = view[received:]

    def _wait(self, events: int, deadline: float) -> None:
        self._poll.modify(self._socket, events)
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not self._poll.poll(remaining * 1000 + 1):
            raise self._connection_lost("timed out")

    def _connection_lost(self, reason: str) -> ConnectionLost:
        lost = ConnectionLost(f"lost the connection to {self.where}: {reason}")
        self._fail(lost)
        return lost

    def not_kafka(self, what: str) -> NotKafka:
        self._fail(ConnectionLost(f"the connection to {self.where} is closed"))
        listener = "Kafka listener" if self._secure is not None else "plaintext Kafka listener"
        return NotKafka(f"{self.where} {what}: it is not a {listener}")

    def _fail(self, reason: ClientError) -> None:
        self._socket.close()
        while self._pending:
            self._pending.popleft().lost = reason

    def _negotiate(self) -> dict[int, ApiRange]:
        """Send ApiVersions v3, and v0 if the broker answers error 35 (in format 0) to v3."""
        from odradek import __version__

        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        timeout_ms = self._config.connect_timeout_ms
        pending = self.send(request, ApiVersionsResponse, version=3, timeout_ms=timeout_ms)
        try:
            self.receive(pending.deadline)
        except ConnectionLost as lost:
            # The cause may be a TLS listener or a broker without ApiVersions. A broker that is being killed looks the
            # same.
            hint = "is it a plaintext listener of Kafka 0.10 or newer?"
            if self._secure is not None:  # For example a TLS rejection that was lost in transit.
                hint = "does the broker trust the certificate of this client, and is it Kafka 0.10 or newer?"
            raise ConnectionLost(f"{lost}; {hint}") from lost
        if pending.frame is not None and is_unsupported_version(pending.frame):
            pending = self.send(request, ApiVersionsResponse, version=0, timeout_ms=timeout_ms)
        response = pending.result()
        if response.error_code:
            raise response_error(response.error_code, f"ApiVersions of {self.where}")
        self.features = {feature.name: feature.max_version_level for feature in response.finalized_features}
        return {api.api_key: ApiRange(api.min_version, api.max_version) for api in response.api_keys}


def is_unsupported_version(frame: memoryview) -> bool:
    """Return whether an ApiVersions answer has the error UNSUPPORTED_VERSION.

    The error code follows the correlation id in every version.
    """
    return len(frame) >= 6 and _ERROR_CODE.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION


def connect(address: Address, timeout_ms: int) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout_ms / 1000)
    except OSError as error:
        raise KafkaUnavailable(f"cannot connect to {format_address(address)}: {reason_of(error)}") from error
    if connected.getsockname() == connected.getpeername():
        # Repeated connection attempts to a local port without a listener may get that same port as source port and
        # connect to themselves (TCP simultaneous open). Such a connection would also prevent the broker from binding
        # the port.
        connected.close()
        raise KafkaUnavailable(f"cannot connect to {format_address(address)}: connection refused")
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setblocking(False)
    return connected


def open_tls_stream(address: Address, config: ClientConfig, where: str, host_name: str | None) -> SecureStream:
    """Open a TLS connection; raise the errors of Connection's constructor."""
    from odradek.client.connection.socket_streams import SecureStream  # A plain-text client does not need ssl.

    assert config.tls is not None, "a TLS connection has a TLS configuration"
    plain = connect(address, config.connect_timeout_ms)
    return SecureStream(plain, config.tls, host_name or address[0], where, config.connect_timeout_ms)


def format_address(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason_of(error: OSError) -> str:
    """Return the system's error text in lower case, for example `connection refused`."""
    if isinstance(error, TimeoutError):
        return "timed out"
    text = error.strerror or str(error) or type(error).__name__
    return text[0].lower() + text[1:]


def _encode(request: object, version: int, correlation_id: int, client_id: str) -> list[Chunk]:
    try:
        return encode_request(request, version, correlation_id, client_id)
    except UnicodeEncodeError:
        raise
    except ValueError as error:
        raise Unsendable(f"The request cannot be encoded: {error}.") from error
