"""The server's side of one connection, without I/O: received bytes become requests, answers become bytes in order.

    net ──> get_buffer, buffer_updated ──> [Request, ...] ──> api
    net <── data_to_send               <── answer, in any order

A frame, and the header in front of the body:

│ i32 size of the rest │ i16 api key │ i16 version │ i32 correlation id │ i16 length, -1 = null │ client id │
│ tagged fields (flexible versions) │ body ...

Requests are parsed where they were received, and their bodies are views of that place: they hold until the next
get_buffer or receive_data.  One buffer is used again and again.  A frame that doesn't fit gets a larger one, which
doubles as bytes arrive, so a length that lies costs its sender as much as us.  A bytearray with views can't be
resized: a buffer is always replaced, never grown.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from odradek.base.limits import RECEIVE_BUFFER_BYTES, REQUEST_BYTES_MAX
from odradek.wire.api_keys import FLEXIBLE_FROM, ApiKey, request_header_version
from odradek.wire.errors import Malformed, cut_short
from odradek.wire.primitives import Buffer, Chunk
from odradek.wire.request import Request
from odradek.wire.varint import skip_tags

_SIZE_BYTES = 4
_HEADER_BYTES_MIN = 8  # Of version 0.
_FRONT = Struct(">ihhih")  # Size, key, version, correlation id, length of the client id.
_FRONT_BYTES = _FRONT.size
_unpack_front = _FRONT.unpack_from
_unpack_size = Struct(">i").unpack_from
_unpack_header = Struct(">hhi").unpack_from
_unpack_length = Struct(">h").unpack_from
_new = object.__new__

_NEVER = 1 << 15  # No version is that high.
# The APIs whose every version has a client id in its header.
_FLEXIBLE_FROM: dict[int, int] = {
    key: _NEVER if version is None else version
    for key, version in FLEXIBLE_FROM.items()
    if key != ApiKey.CONTROLLED_SHUTDOWN
}
_flexible_from = _FLEXIBLE_FROM.get


class Connection:
    """Raises Malformed for what is no request; what came before it is handed out first (see `failure`)."""

    def __init__(self, request_bytes_max: int = REQUEST_BYTES_MAX, buffer_bytes: int = RECEIVE_BUFFER_BYTES) -> None:
        self.request_bytes_max = request_bytes_max  # May be raised when the peer has authenticated itself.
        # Set when bytes were no request.  The call that finds them returns the requests before them if there are any;
        # every later call raises it.  After the answers the connection is to be closed.
        self.failure: Malformed | None = None
        self._buffer_bytes = buffer_bytes
        self._use(bytearray(buffer_bytes))
        self._start = 0  # Parsed up to here,
        self._end = 0  # received up to here.
        self._client_id_bytes = b""  # The last client id: a connection's requests all have the same.
        self._client_id: str = ""
        self._next_request = 0
        self._next_answer = 0
        self._early: dict[int, list[Chunk] | None] = {}  # Answers that wait for those before them.
        self._ready: list[Chunk] = []

    @property
    def in_flight(self) -> int:
        """Requests handed out whose answers have not come, or wait for earlier ones."""
        return self._next_request - self._next_answer

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Space for received bytes, never empty.  Bodies handed out before are void from here on."""
        if self.failure is not None:
            raise self.failure
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) != self._buffer_bytes:
                self._use(bytearray(self._buffer_bytes))
        elif self._start:
            self._move(self._buffer_bytes)
        if self._end == len(self._buffer):
            self._move(min(2 * self._end, self._frame_bytes()))
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> list[Request]:
        """The requests that are complete now that `nbytes` were put into the buffer.  Raises Malformed."""
        if self.failure is not None:
            raise self.failure
        self._end += nbytes
        requests: list[Request] = []
        try:
            self._parse(requests)
        except Malformed as malformed:
            self.failure = malformed
            if not requests:
                raise
        return requests

    def receive_data(self, data: Buffer) -> list[Request]:
        """The same for bytes that lie elsewhere: they are copied.  Raises Malformed."""
        space = self.get_buffer()
        if len(data) > len(space):
            self._move(self._end - self._start + len(data))
            space = self._view[self._end :]
        space[: len(data)] = data
        return self.buffer_updated(len(data))

    def answer(self, request: Request, chunks: list[Chunk] | None) -> None:
        """The whole frame that answers `request`, or None if it gets no answer (acks 0).  Once per request."""
        sequence = request.sequence
        if sequence != self._next_answer:
            assert sequence > self._next_answer and sequence not in self._early, f"{request} is answered twice"
            self._early[sequence] = chunks
            return
        if chunks is not None:
            self._ready += chunks
        sequence += 1
        while self._early and sequence in self._early:
            if (early := self._early.pop(sequence)) is not None:
                self._ready += early
            sequence += 1
        self._next_answer = sequence

    def data_to_send(self) -> list[Chunk]:
        """Every answer whose turn has come, in the order of the requests; each is given once."""
        ready, self._ready = self._ready, []
        return ready

    def _use(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)

    def _move(self, size: int) -> None:
        """Puts what is not parsed yet to the front of a buffer of `size` bytes, or more if it needs them."""
        rest = self._view[self._start : self._end]
        size = max(size, len(rest))
        if size == len(self._buffer):
            self._view[: len(rest)] = rest
        else:
            self._use(bytearray(size))
            self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _frame_bytes(self) -> int:
        return _SIZE_BYTES + int(_unpack_size(self._buffer, self._start)[0])

    def _parse(self, requests: list[Request]) -> None:
        """Appends every whole request and moves past it, up to one that isn't whole."""
        while self._end > self._start:
            self._parse_plain(requests)
            request = self._parse_one()
            if request is None:
                return
            requests.append(request)

    def _parse_plain(self, requests: list[Request]) -> None:
        """The same for plain requests, which are nearly all; stops at the first that is anything else."""
        buffer, view, at, end = self._buffer, self._view, self._start, self._end
        size_max, sequence = self.request_bytes_max, self._next_request
        known, known_text, known_bytes = self._client_id_bytes, self._client_id, len(self._client_id_bytes)
        while end - at >= _FRONT_BYTES:
            size, api_key, api_version, correlation_id, n = _unpack_front(buffer, at)
            stop = at + _SIZE_BYTES + size
            body = at + _FRONT_BYTES
            if stop > end or stop < body or size > size_max:
                break
            if n < 0:
                client_id = None
            else:
                body += n
                if body > stop:
                    break
                if n != known_bytes or not buffer.startswith(known, body - n):
                    known, known_bytes = bytes(view[body - n : body]), n
                    known_text = known.decode("utf-8", "replace")
                client_id = known_text
            if api_version >= _flexible_from(api_key, -_NEVER):
                if body == stop or buffer[body] or api_key not in _FLEXIBLE_FROM:
                    break
                body += 1
            request: Request = _new(Request)
            request.api_key = api_key
            request.api_version = api_version
            request.correlation_id = correlation_id
            request.client_id = client_id
            request.body = view[body:stop]
            request.size = stop - at
            request.sequence = sequence
            requests.append(request)
            sequence += 1
            at = stop
        self._start, self._next_request = at, sequence
        self._client_id_bytes, self._client_id = known, known_text

    def _parse_one(self) -> Request | None:
        """The next request, whatever it is, or None if it isn't whole.  Raises Malformed."""
        at = self._start
        if self._end - at < _SIZE_BYTES:
            return None
        (size,) = _unpack_size(self._buffer, at)
        if not _HEADER_BYTES_MIN <= size <= self.request_bytes_max:
            raise Malformed(f"a request of {size} bytes, from {_HEADER_BYTES_MIN} to {self.request_bytes_max} are read")
        stop = at + _SIZE_BYTES + size
        if stop > self._end:
            return None
        api_key, api_version, correlation_id = _unpack_header(self._buffer, at + _SIZE_BYTES)
        header = _HeaderEnd(self._view[at + _SIZE_BYTES + _HEADER_BYTES_MIN : stop])
        header.parse(api_key, api_version)
        request = Request(
            api_key, api_version, correlation_id, header.client_id, header.rest, stop - at, self._next_request
        )
        self._start = stop
        self._next_request += 1
        return request


class _HeaderEnd:
    """What follows the correlation id, parsed as far as it goes."""

    def __init__(self, rest: memoryview) -> None:
        self.client_id: str | None = None
        self.rest = rest

    def parse(self, api_key: int, api_version: int) -> None:
        """Raises Malformed.

        Not for an API that nobody knows, nor for ApiVersions: its newest header may not be ours, and the client is to
        be told so (KIP-511).  There the body is all that isn't understood.
        """
        try:
            version = request_header_version(api_key, api_version)
            if version >= 1:
                self._take_client_id()
            if version >= 2:
                self.rest = self.rest[skip_tags(self.rest, 0) :]
        except (Malformed, IndexError, struct_error) as error:
            if api_key in FLEXIBLE_FROM and api_key != ApiKey.API_VERSIONS:
                raise Malformed(f"the header of API {api_key} version {api_version} is cut short") from error

    def _take_client_id(self) -> None:
        (n,) = _unpack_length(self.rest, 0)
        if n > len(self.rest) - 2:
            raise cut_short("client id", n, len(self.rest) - 2)
        if n >= 0:
            self.client_id = str(self.rest[2 : 2 + n], "utf-8", "replace")
        self.rest = self.rest[2 + max(n, 0) :]
