"""Clients of a Harness with the interface of RawClient: each has its own connection and admission."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from odradek.api.request.admission import Admission
from odradek.api.request.call import Peer
from odradek.api.request.outcome import Encoded
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.log.files.disk import FileSlice
from odradek.wire.client_codec import decode_response
from support.in_memory import Harness
from support.raw_client import frame

Answer = TypeVar("Answer")


class _NoSocket:
    def settimeout(self, seconds: float) -> None:
        pass


class HarnessClient:
    """One connection of a client with an admission by the gate."""

    def __init__(self, harness: Harness, admission: Admission) -> None:
        self.socket = _NoSocket()
        self._harness = harness
        self.peer = Peer(harness.peer.listener, harness.peer.local, None, harness.peer.address)
        self.peer.set_admission(admission)
        self.last_frame = b""
        self._outcomes: deque[Encoded | ParkedRequest[Encoded]] = deque()

    def send(self, data: bytes) -> None:
        before, self._harness.peer = self._harness.peer, self.peer
        try:
            outcome = self._harness.send_frame(data)
        finally:
            self._harness.peer = before
        if outcome is not None:
            self._outcomes.append(outcome)

    def read_frame(self) -> bytes:
        """Return one response without its length."""
        chunks = self._harness.finished(self._outcomes.popleft())
        assert chunks is not None
        self._harness.settle()
        self.last_frame = b"".join(chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks)[
            4:
        ]  # type: ignore[arg-type]
        return self.last_frame

    def request(self, message: object, version: int, answer: type[Answer]) -> Answer:
        self.send(frame(message, version))
        return decode_response(answer, version, self.read_frame())[1]

    def close(self) -> None:
        self._outcomes.clear()
