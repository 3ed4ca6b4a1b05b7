"""Slow connections: readers that read a response byte by byte, and writers that send a request the same way.

`python -m support.slow_crowd PORT TOPIC COUNT` keeps this number of each active until it is ended.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from types import TracebackType

from support.asking import FETCH, PRODUCE, fetch_request, produce_request
from support.raw_client import RawClient, frame

STEP_SECONDS = 0.02
VALUE_BYTES = 20_000


class SlowCrowd:
    """The connections; `step` lets each of them send or receive one byte."""

    def __init__(self, port: int, topic: str, count: int) -> None:
        self._fetch = frame(fetch_request(topic, 0), FETCH)
        self._produce = frame(produce_request(topic, bytes(VALUE_BYTES)), PRODUCE)
        self.readers = [RawClient(port, receive_buffer=4096) for _ in range(count)]
        self.taken = [bytearray() for _ in range(count)]
        self.writers = [RawClient(port) for _ in range(count)]
        self.steps = 0
        for reader in self.readers:
            reader.send(self._fetch)

    def step(self) -> None:
        at = self.steps % len(self._produce)
        for writer in self.writers:
            writer.send(self._produce[at : at + 1])
        for reader, taken in zip(self.readers, self.taken, strict=True):
            byte = reader.socket.recv(1)
            assert byte, "the broker closed the connection"
            taken.extend(byte)
        self.steps += 1

    def read_rest(self, number: int) -> bytes:
        """Return the whole response of one reader, after some steps."""
        taken = self.taken[number]
        (size,) = struct.unpack_from(">i", taken)
        reader = self.readers[number]
        while len(taken) < 4 + size:
            piece = reader.socket.recv(1 << 20)
            assert piece, "the broker closed the connection"
            taken += piece
        return bytes(taken[4:])

    def finish_writing(self) -> None:
        at = self.steps % len(self._produce)
        for writer in self.writers:
            writer.send(self._produce[at:])

    def is_any_writer_answered(self) -> bool:
        """Return True if a writer has a response, which would be wrong before it has sent its whole request."""
        for writer in self.writers:
            writer.socket.setblocking(False)
            try:
                writer.socket.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                writer.socket.setblocking(True)
            else:
                return True
        return False

    def __enter__(self) -> SlowCrowd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (*self.readers, *self.writers):
            one.close()


if __name__ == "__main__":
    with SlowCrowd(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])) as crowd:
        print("ready", flush=True)
        while True:
            crowd.step()
            time.sleep(STEP_SECONDS)
