"""What dispatch comes back with: an answer, or something that will have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from odradek.core.parked import Parked
from odradek.wire.primitives import Chunk
from odradek.wire.request import Request
from odradek.wire.response import encode_response

NO_BODY = memoryview(b"")  # An answer that waits must not keep the receive buffer alive.

Encoded: TypeAlias = list[Chunk] | None


class Staged:
    """A produce whose batches have their places, and are written by the broker's next commit."""

    __slots__ = ()

    def finish(self) -> Encoded | Parked[Encoded]:
        """Once, after the commit: the answer, or what it waits for.

        Raises ConnectionAbortedError for a failure that no answer can carry.
        """
        raise NotImplementedError


Outcome: TypeAlias = Encoded | Parked[Encoded] | Staged


def encoded(request: Request, answer: object) -> Encoded | Parked[Encoded]:
    """A handler's answer in the request's version: a message, None, or a message parked."""
    if isinstance(answer, Parked):
        return Parked(answer.condition, answer.deadline, _encoder(request, answer.then))
    return None if answer is None else encode_response(request, answer)


def _encoder(request: Request, then: Callable[[], object]) -> Callable[[], Encoded]:
    return lambda: encode_response(request, then())
