"""What dispatch returns: an answer, or something that will have one.

Encoded          the answer's bytes, None where there is none (acks 0)
Parked[Encoded]  the answer comes when something has happened, or at a deadline; the next request is handled
Staged           a produce whose batches have their offsets; the broker's next commit writes them
Steps            not done yet: handled on in slices, or when a thread is through; the next request waits
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import GeneratorType
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from odradek.base.limits import SLICE_ELEMENTS
from odradek.core.broker.effects import Work
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.parked import Parked
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.primitives import Chunk

NO_BODY = memoryview(b"")  # An answer that waits must not keep the receive buffer alive.

Encoded: TypeAlias = list[Chunk] | None


class Staged:
    """A produce whose batches have their offsets, and are written by the broker's next commit.

    Staging one that `is_quick` took some ten microseconds.
    """

    is_quick = False

    def finish(self) -> Encoded | Parked[Encoded]:
        """Returns the answer, or the request parked; called once, after the commit.

        Raises ConnectionAbortedError for a failure that no answer can carry.
        """
        raise NotImplementedError


class Resumed(NamedTuple):
    """What a request in steps is resumed with: the time, and its Work's result (a value, or an error)."""

    now: Moment
    value: Any = None
    error: Exception | None = None


# What a request in steps waits for: a thread's work, an event (its value is what `then` gives), or only its next turn.
PAUSE = None
Wait: TypeAlias = Work | Parked[object] | None
Done: TypeAlias = Encoded | Parked[Encoded] | Staged
Steps: TypeAlias = Generator[Wait, Resumed, Done]
Outcome: TypeAlias = Done | Steps

# A handler may be written as a generator of the same kind: it gets a Work's value from the `yield`, or its error is
# raised there; its return value is its answer.  One of many elements yields PAUSE after each: a slice is some of them.
Slices: TypeAlias = Generator[Wait, object, object]


class Short(NamedTuple):
    """The answer of a handler that was a generator only to wait: as short as one that comes at once."""

    answer: Any  # Not `object`: compiled, the class could not be made.


def encoded(request: Request, answer: object, throttle_ms: int = 0) -> Encoded | Parked[Encoded]:
    """Encodes a handler's answer (a message, None, or a message parked) in the request's version."""
    if isinstance(answer, Parked):
        parked = Parked(answer.condition, answer.deadline, _encoder(request, answer.then, throttle_ms))
        parked.takes_long = answer.takes_long
        return parked
    if throttle_ms:
        tell_throttled(answer, throttle_ms)
    return None if answer is None else encode_response(request, answer)


def tell_throttled(answer: object, throttle_ms: int) -> None:
    """Puts the throttle time into an answer that has a field for it (KIP-219)."""
    if hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = throttle_ms


def _encoder(request: Request, then: Callable[[], object], throttle_ms: int) -> Callable[[], Encoded]:
    def encode() -> Encoded:
        answer = then()
        if throttle_ms:
            tell_throttled(answer, throttle_ms)
        return encode_response(request, answer)

    return encode


def has_slices(answer: object) -> TypeGuard[Slices]:
    """True if the handler answers in slices, as a generator.

    That of a compiled handler is no GeneratorType, and collections.abc.Generator takes three times as long to ask.
    """
    return isinstance(answer, GeneratorType) or hasattr(answer, "send")


def slice_of(slices: Slices, resumed: Resumed | None = None) -> Wait:
    """Resumes a handler until it has to wait or its slice is over.  Raises StopIteration at its end."""
    if resumed is None:
        wait = next(slices)
    else:
        wait = slices.send(resumed.value) if resumed.error is None else slices.throw(resumed.error)
    for _ in range(SLICE_ELEMENTS):
        if wait is not PAUSE:
            return wait
        wait = next(slices)
    return wait
