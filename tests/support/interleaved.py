"""A request processed in slices, and other requests between two of them, without sockets."""

from __future__ import annotations

from typing import TypeVar

from odradek.api.conversation import Conversation
from odradek.log.files.disk import FileSlice
from odradek.wire.client_codec import decode_response
from support.in_memory import Harness, frame_of

Answer = TypeVar("Answer")


class Begun:
    """An unfinished request on its own connection, after some slices."""

    def __init__(self, harness: Harness, message: object, version: int, slices: int = 1) -> None:
        self._harness = harness
        self._version = version
        self._talk: Conversation = harness.talk()
        self._talk.receive_data(frame_of(message, version, 1, "c"))
        for _ in range(slices):
            assert self._talk.step(harness.now, 0), "it is over, or waits for a thread"

    def steps_to_a_thread(self) -> None:
        """Continue until work for a thread is pending."""
        while self._talk.step(self._harness.now, 0):
            pass
        assert self._harness.broker.works

    def waits_in_slices(self) -> bool:
        """Return True if the response, which waits for a write, will be built in slices and encoded by a thread."""
        self._harness.resume(self._talk)
        assert self._talk.is_waiting
        return not self._talk.parked

    def finish(self, answer: type[Answer]) -> Answer:
        """Execute all that the response waits for, and return it."""
        talk, harness = self._talk, self._harness
        while True:
            harness.resume(talk)
            assert talk.ending is None, talk.ending
            chunks = talk.data_to_send()
            if chunks:
                data = b"".join(one.read() if isinstance(one, FileSlice) else bytes(one) for one in chunks)  # type: ignore[arg-type]
                return decode_response(answer, self._version, data[4:])[1]
            harness.settle()
            for parked in harness.broker.purgatory.take_completed():
                talk.answer_parked(parked, harness.now)  # type: ignore[arg-type]
