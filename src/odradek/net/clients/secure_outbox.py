"""Outbox of a TLS connection: TLS records, created no faster than the peer reads.

It works like any outbox (net/shell/outbox.py), but all bytes pass through this process. Slices of files are read from
the page cache in small pieces, or in a thread from a cold disk, and never by a mover. Only as much is encrypted as the
socket may take, because encryption cannot be undone.
"""

from __future__ import annotations

import asyncio
import os
from typing import cast

from odradek.net.shell.outbox import FileBytes, Loop, Outbox
from odradek.tls.tls_errors import TlsFailed
from odradek.tls.tls_session import Session
from odradek.wire.schema.primitives import IN_MEMORY, Chunk

PIECE_BYTES = 128 * 1024  # Encrypted at once: eight records.


class _Records:
    """TLS records that the socket has not taken yet; only ever the first chunk."""

    def __init__(self, rest: memoryview) -> None:
        self.rest = rest


class SecureOutbox(Outbox):
    """Outbox of a TLS connection; it exists before the connection, as the handshake also uses it."""

    is_bare = False

    def __init__(self, transport: asyncio.WriteTransport, session: Session, loop: Loop, gathering: memoryview) -> None:
        """Create an outbox; `gathering` is space for a piece, which all outboxes of a loop may share."""
        super().__init__(transport, loop, lambda: None)
        self._session = session
        self._gathering = gathering

    def send(self) -> None:
        closes, self._closes_when_empty = self._closes_when_empty, False
        super().send()
        self._closes_when_empty = closes
        if self._is_dropped or self._chunks or self._is_busy:
            return
        if closes:
            self._session.close()
        if self._session.bytes_to_send:  # The handshake, an alert, or our close_notify.
            self._chunks.append(cast(Chunk, _Records(memoryview(self._session.data_to_send()))))
        super().send()

    def _send_bytes(self) -> int:
        return self._send_piece()

    def _send_slice(self) -> int:
        return self._send_piece()

    def _send_piece(self) -> int:
        first = self._chunks[0]
        if isinstance(first, _Records):
            self._chunks.popleft()
            return self._send_records(first.rest)
        data = self._gathered()
        if not data:
            return 0  # A thread reads it.
        try:
            self._session.write(data)
        except TlsFailed as reason:
            self._abort(reason)
            return 0
        return self._send_records(memoryview(self._session.data_to_send()))

    def _gathered(self) -> memoryview:
        """Gather a piece of the next chunks, from files and memory, to send it in one write.

        The next call invalidates the piece.
        """
        chunks, space, filled = self._chunks, self._gathering, 0
        first = chunks[0]
        if isinstance(first, IN_MEMORY) and (len(chunks) == 1 or len(first) >= len(space)):
            chunks.popleft()
            self._put_back(first, min(len(first), len(space)))
            return memoryview(first)[: len(space)]
        while chunks and filled < len(space):
            chunk = chunks[0]
            if isinstance(chunk, IN_MEMORY):
                size = min(len(chunk), len(space) - filled)
                space[filled : filled + size] = chunk[:size]
            else:
                size = cast(FileBytes, chunk).read_cached(space[filled:])
                if not size:
                    if not filled:
                        self._read(cast(FileBytes, chunks.popleft()))
                    break
            chunks.popleft()
            self._put_back(chunk, size)
            filled += size
        return space[:filled]

    def _put_back(self, chunk: Chunk, taken: int) -> None:
        if isinstance(chunk, IN_MEMORY):
            if taken < len(chunk):
                self._chunks.appendleft(memoryview(chunk)[taken:])
            return
        records = cast(FileBytes, chunk)
        if taken < records.size:
            self._chunks.appendleft(cast(Chunk, records.part(taken, records.size - taken)))

    def _send_records(self, records: memoryview) -> int:
        try:
            sent = os.write(self._descriptor, records)
        except BlockingIOError:
            sent = 0
        self._count_sent(sent)
        if sent < len(records):
            self._chunks.appendleft(cast(Chunk, _Records(records[sent:])))
            self._wait_for_room()
        return sent
