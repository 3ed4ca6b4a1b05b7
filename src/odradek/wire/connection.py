"""The server's side of one connection without I/O: data to requests, and answers to data in order.

    net ──> get_buffer, buffer_updated ──> [Request, ...] ──> api
    net <── data_to_send               <── answer, in any order

A frame, with the header before the body:

│ i32 size of the rest │ i16 api key │ i16 version │ i32 correlation id │ i16 length, -1 = null │ client id │
│ tagged fields (flexible versions) │ body ...

Requests are parsed in the receive buffer. Their bodies are views of it, valid until the next get_buffer or
receive_data. One buffer is reused; an idle connection has none. A frame that does not fit gets a larger buffer, which
doubles as bytes arrive, so a false length costs its sender as much as this broker.

The size of a larger buffer is part of the budget of all connections (wire/budget.py). Without room the connection
`is_starved` and must not be read from until its share permits it. A bytearray with views can't be resized, so a buffer
is always replaced, never grown.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error

from odradek.base.limits import (
    RECEIVE_BUFFER_BYTES,
    RECEIVE_BUFFER_BYTES_MIN,
    RECEIVE_BUFFER_KEPT_BYTES_MAX,
    REQUEST_BYTES_MAX,
    REQUESTS_PER_READ_TO_GROW_MAX,
    TAGGED_FIELDS_MAX,
)
from odradek.wire.budget import Share
from odradek.wire.kafka_0_7 import explain_frame
from odradek.wire.pages import Pages
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import FLEXIBLE_FROM, ApiKey, request_header_version
from odradek.wire.schema.malformed import Malformed, cut_short
from odradek.wire.schema.primitives import Buffer, Chunk
from odradek.wire.schema.varint import skip_tags

_SIZE_BYTES = 4
_HEADER_BYTES_MIN = 8  # A header of version 0.
_FRONT = Struct(">ihhih")  # Size, key, version, correlation id, length of the client id.
_FRONT_BYTES = _FRONT.size
_unpack_front = _FRONT.unpack_from
_unpack_size = Struct(">i").unpack_from
_unpack_header = Struct(">hhi").unpack_from
_unpack_length = Struct(">h").unpack_from

FRONT_BYTES_MIN = 1024
FRONT_READ_BYTES = 4 * 1024
READS_PER_REVIEW = 64  # After this many reads, the buffer size is adapted to their size.

_NEVER = 1 << 15  # No version is this high.
# The APIs with a client id in the header of every version.
_FLEXIBLE_FROM: dict[int, int] = {
    key: _NEVER if version is None else version
    for key, version in FLEXIBLE_FROM.items()
    if key != ApiKey.CONTROLLED_SHUTDOWN
}
_flexible_from = _FLEXIBLE_FROM.get


def _space(size: int) -> bytearray | Pages:
    return bytearray(size) if size <= RECEIVE_BUFFER_BYTES else Pages(-1, size)


class Connection:
    """One connection; it raises Malformed for an invalid request after returning those before (`failure`)."""

    def __init__(
        self,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        buffer_bytes: int = RECEIVE_BUFFER_BYTES_MIN,
        share: Share | None = None,
    ) -> None:
        self.request_bytes_max = request_bytes_max  # May be increased after the peer has authenticated.
        # Set when invalid bytes were received. The call that finds them returns the preceding requests, if any; every
        # later call raises it. The connection must be closed after the answers are sent.
        self.failure: Malformed | None = None
        self._share = Share() if share is None else share
        self._share.free_buffer = self._free_buffer
        self._bytes_min = buffer_bytes
        self._bytes_next = buffer_bytes  # The size of the buffer when get_buffer replaces it.
        self._use(bytearray())
        self._reads = self._peak_bytes = 0  # Since the last review.
        self._is_all_handled = True  # All requests were handled, so no data in the buffer is needed.
        self._is_outgrown = False  # By a request that started in a smaller buffer.
        self._read_bytes = RECEIVE_BUFFER_BYTES  # Maximum size of a read beyond the request that it completes.
        self._start = 0  # End of the parsed data,
        self._end = 0  # and end of the received data.
        self._client_id_bytes = b""  # The last client id, normally the same in all requests of a connection.
        self._client_id: str = ""
        self._next_request = 0
        self._next_answer = 0
        self._early: dict[int, list[Chunk] | None] = {}  # Answers that wait for earlier ones.
        self._ready: list[Chunk] = []

    @property
    def in_flight(self) -> int:
        """Return the number of requests without a sent answer, including answers that wait for earlier ones."""
        return self._next_request - self._next_answer

    @property
    def is_starved(self) -> bool:
        """Return whether the buffer is full with a partial request and the budget has no room for more."""
        return self._share.awaited_bytes > 0

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Return non-empty space for received bytes; this invalidates the bodies of earlier requests."""
        if self.failure is not None:
            raise self.failure
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) != self._bytes_next:
                self._use(_space(self._bytes_next))
        elif self._start:
            is_enough = self._end - self._start < self._bytes_next
            self._move(self._bytes_next if is_enough else len(self._buffer))
        if self._end == len(self._buffer):
            self._move(self._outgrown_bytes())
        end = self._end
        # Not much more than the pending request, even if there is room: see limits.
        known = end if end < _SIZE_BYTES else max(end, _SIZE_BYTES + int(_unpack_size(self._buffer, 0)[0]))
        return self._view[end : known + self._read_bytes]

    def buffer_updated(self, nbytes: int) -> list[Request]:
        """Return the requests completed by `nbytes` bytes put into the buffer, or raise Malformed."""
        if self.failure is not None:
            raise self.failure
        self._end += nbytes
        self._share.received += nbytes
        requests: list[Request] = []
        try:
            self._parse(requests)
        except Malformed as malformed:
            self.failure = malformed
            if not requests:
                raise
        if requests:
            self._is_all_handled = False
            self._read_bytes = RECEIVE_BUFFER_BYTES
        self._peak_bytes = max(self._peak_bytes, self._end)
        if self._end == len(self._buffer):
            self._filled(len(requests))
        self._reads += 1
        if self._reads == READS_PER_REVIEW:
            self._review()
        return requests

    def front(self) -> Request | None:
        """Return the partially received request, with the available part of its body.

        `size` is the size of the frame. Return None if there is no such request or it is not plain. The request is not
        handed out yet: its rest is received here, or elsewhere after `set_aside`.
        """
        buffer, view, at, end = self._buffer, self._view, self._start, self._end
        if end - at < FRONT_BYTES_MIN:
            return None
        size, api_key, api_version, correlation_id, n = _unpack_front(buffer, at)
        body = at + _FRONT_BYTES + max(n, 0)
        if body >= end or size > self.request_bytes_max or api_key not in _FLEXIBLE_FROM:
            return None
        client_id = None if n < 0 else bytes(view[body - n : body]).decode("utf-8", "replace")
        if api_version >= _FLEXIBLE_FROM[api_key]:
            if buffer[body]:
                return None
            body += 1
        size += _SIZE_BYTES
        return Request(api_key, api_version, correlation_id, client_id, view[body:end], size, self._next_request)

    @property
    def missing_bytes(self) -> int:
        """Return the number of missing bytes of a partially received request."""
        if self._end - self._start < _SIZE_BYTES:
            return 0
        return _SIZE_BYTES + int(_unpack_size(self._buffer, self._start)[0]) - (self._end - self._start)

    def set_aside(self) -> bytes:
        """Hand out the request of `front`, whose rest is received elsewhere, and return its received part."""
        received = bytes(self._view[self._start : self._end])
        self._next_request += 1
        self._start = self._end = 0
        self._read_bytes = FRONT_READ_BYTES  # The next request may be similar.
        self._is_outgrown = False
        self._share.set_held(max(len(self._buffer) - self._bytes_min, 0))
        self._share.request_done()
        return received

    def hand_back(self, parts: Sequence[Buffer], size: int) -> list[Request]:
        """Take back the received parts of a request that was set aside; the rest is received here.

        `size` is the size of the whole request.
        """
        self._next_request -= 1
        self._use(_space(size))
        self._is_outgrown = True
        at = 0
        for part in parts:
            self._view[at : at + len(part)] = part
            at += len(part)
        return self.buffer_updated(at)

    def mark_requests_handled(self) -> None:
        """Record that all requests handed out so far are handled, so that their bytes can be freed."""
        self._is_all_handled = True
        if self._is_outgrown and (self._start or not self._end):
            self._is_outgrown = False
            if len(self._buffer) > RECEIVE_BUFFER_KEPT_BYTES_MAX or self._share.is_over:
                self._move(self._bytes_min)
            self._share.request_done()

    def leave(self) -> None:
        """Free the buffer immediately instead of at garbage collection, because no more data is received."""
        if self.failure is not None:
            self.failure.__traceback__ = None  # A traceback refers to its frames, and these refer to this object.
        self._share.leave()
        self._start = self._end = 0
        self._use(bytearray())

    def receive_data(self, data: Buffer) -> list[Request]:
        """Copy received bytes into the buffer and return the completed requests, or raise Malformed."""
        space = self.get_buffer()
        if len(data) > len(space):
            self._move(self._end - self._start + len(data))
            space = self._view[self._end :]
        space[: len(data)] = data
        return self.buffer_updated(len(data))

    def answer(self, request: Request, chunks: list[Chunk] | None) -> None:
        """Accept the answer frame of `request`, or None for no answer (acks 0); call this once per request."""
        sequence = request.sequence
        if sequence != self._next_answer:
            assert sequence > self._next_answer and sequence not in self._early, f"{request} has more than one response"
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
        """Return all answers that can be sent, in the order of the requests; each is returned once."""
        ready, self._ready = self._ready, []
        return ready

    def _use(self, buffer: bytearray | Pages) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        size = len(buffer)
        if self._bytes_min <= size <= RECEIVE_BUFFER_KEPT_BYTES_MAX:
            self._bytes_next = size
        self._share.set_held(max(size - self._bytes_min, 0))

    def _filled(self, requests: int) -> None:
        """Increase the buffer, or request an increase, after a read that filled it, if necessary."""
        size = len(self._buffer)
        if self._end - self._start == size:
            if self.failure is None:
                self._is_outgrown = True
                self._share.reserve(self._outgrown_bytes() - self._bytes_min)
        elif requests <= REQUESTS_PER_READ_TO_GROW_MAX and size < RECEIVE_BUFFER_BYTES:
            larger = min(4 * size, RECEIVE_BUFFER_BYTES)
            if self._share.try_reserve(larger - self._bytes_min):
                self._bytes_next = larger

    def _review(self) -> None:
        """Shrink the next buffer if it is much larger than all data since the last review."""
        if self._peak_bytes <= self._bytes_next // 4:
            self._bytes_next = max(self._bytes_next // 2, self._bytes_min)
        self._reads = self._peak_bytes = 0

    def _free_buffer(self) -> None:
        if self._start == self._end and self._is_all_handled and self._buffer:
            self._start = self._end = 0
            self._use(bytearray())
            self._bytes_next = self._bytes_min

    def _move(self, size: int) -> None:
        """Move the unparsed data to the front of a buffer of at least `size` bytes."""
        rest = self._view[self._start : self._end]
        size = max(size, len(rest))
        if size == len(self._buffer):
            self._view[: len(rest)] = rest
        else:
            self._use(_space(size))
            self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _outgrown_bytes(self) -> int:
        """Return the next size of a buffer that is full with a partial frame.

        For a large frame this is the size of the frame, because such a buffer is not reused.
        """
        doubled = 2 * self._end
        if doubled <= RECEIVE_BUFFER_KEPT_BYTES_MAX:
            return doubled
        return min(doubled, _SIZE_BYTES + int(_unpack_size(self._buffer, self._start)[0]))

    def _parse(self, requests: list[Request]) -> None:
        """Append every whole request and advance past it, up to the first partial one."""
        self._parse_plain(requests)
        while self._end > self._start and (request := self._parse_one()) is not None:
            requests.append(request)
            self._parse_plain(requests)

    def _parse_plain(self, requests: list[Request]) -> None:
        """Parse plain requests, which are nearly all requests, up to the first that is not plain."""
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
            flexible_from = _flexible_from(api_key)
            if flexible_from is None:
                break
            if api_version >= flexible_from:
                if body == stop or buffer[body]:
                    break
                body += 1
            request = Request(api_key, api_version, correlation_id, client_id, view[body:stop], stop - at, sequence)
            requests.append(request)
            sequence += 1
            at = stop
        self._start, self._next_request = at, sequence
        self._client_id_bytes, self._client_id = known, known_text

    def _parse_one(self) -> Request | None:
        """Return the next request, plain or not, or None if it is partial, or raise Malformed."""
        at = self._start
        if self._end - at < _SIZE_BYTES:
            return None
        (size,) = _unpack_size(self._buffer, at)
        if not _HEADER_BYTES_MIN <= size <= self.request_bytes_max:
            raise Malformed(
                f"invalid request size {size}: it must be from {_HEADER_BYTES_MIN} to {self.request_bytes_max} bytes"
            )
        stop = at + _SIZE_BYTES + size
        if stop > self._end:
            return None
        api_key, api_version, correlation_id = _unpack_header(self._buffer, at + _SIZE_BYTES)
        header = _HeaderEnd(self._view[at + _SIZE_BYTES + _HEADER_BYTES_MIN : stop])
        try:
            header.parse(api_key, api_version)
        except Malformed as malformed:
            raise explain_frame(self._view[at + _SIZE_BYTES : stop], malformed) from None
        request = Request(
            api_key, api_version, correlation_id, header.client_id, header.rest, stop - at, self._next_request
        )
        self._start = stop
        self._next_request += 1
        return request


class _HeaderEnd:
    """The part of the header after the correlation id, parsed as far as possible."""

    def __init__(self, rest: memoryview) -> None:
        self.client_id: str | None = None
        self.rest = rest

    def parse(self, api_key: int, api_version: int) -> None:
        """Parse the rest of a header, or raise Malformed.

        Unknown APIs and ApiVersions do not raise an error: the newest header of ApiVersions may be unknown here, and
        the client needs an answer that says so (KIP-511). For these, the body is everything that could not be parsed.
        """
        try:
            version = request_header_version(api_key, api_version)
            if version >= 1:
                self._take_client_id()
            if version >= 2:
                end, _ = skip_tags(self.rest, 0, TAGGED_FIELDS_MAX)
                self.rest = self.rest[end:]
        except (Malformed, IndexError, struct_error) as error:
            if api_key in FLEXIBLE_FROM and api_key != ApiKey.API_VERSIONS:
                raise Malformed(
                    f"the request header of API key {api_key} version {api_version} is truncated"
                ) from error

    def _take_client_id(self) -> None:
        (n,) = _unpack_length(self.rest, 0)
        if n > len(self.rest) - 2:
            raise cut_short("client id", n, len(self.rest) - 2)
        if n >= 0:
            self.client_id = str(self.rest[2 : 2 + n], "utf-8", "replace")
        self.rest = self.rest[2 + max(n, 0) :]
