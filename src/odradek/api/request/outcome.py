"""Results of dispatch: an answer, or a promise of one.

- Encoded: the answer's bytes, None if there is no answer (acks=0).
- ParkedRequest[Encoded]: answered on an event or at a deadline; later requests are handled in the meantime.
- StagedRequest: a Produce request whose batches have their offsets; the broker's next commit writes them.
- Steps: not finished; continues in slices, or after a thread's work. Later requests wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import GeneratorType
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from odradek.base.limits import SLICE_ELEMENTS
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.kernel.work import Work
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.primitives import Chunk

NO_BODY = memoryview(b"")  # A waiting answer must not keep the receive buffer alive.

Encoded: TypeAlias = list[Chunk] | None


class StagedRequest:
    """A Produce request whose batches have their offsets; the broker's next commit writes them.

    Staging a request with `is_quick` takes some ten microseconds.
    """

    is_quick = False

    def finish(self) -> Encoded | ParkedRequest[Encoded]:
        """Return the answer, or the request parked; called once, after the commit.

        Raise ConnectionAbortedError for a failure that no answer can carry.
        """
        raise NotImplementedError


class Resumption(NamedTuple):
    """Input to a request in steps that resumes: the time, and its Work's result (a value, or an error)."""

    now: Moment
    value: Any = None
    error: Exception | None = None


# A request in steps waits for a thread's work, for an event (with the value that `then` returns), or with PAUSE only
# for its next turn.
PAUSE = None
Wait: TypeAlias = Work | ParkedRequest[object] | None
Done: TypeAlias = Encoded | ParkedRequest[Encoded] | StagedRequest
Steps: TypeAlias = Generator[Wait, Resumption, Done]
Outcome: TypeAlias = Done | Steps

# A handler may be a generator of the same kind. The `yield` returns a Work's value or raises its error, and the
# handler's return value is its answer. A handler of many elements yields PAUSE after each; a slice is several elements.
Slices: TypeAlias = Generator[Wait, object, object]


class ShortAnswer(NamedTuple):
    """A short answer of a handler that was a generator only to wait; it is encoded at once."""

    answer: Any  # Not `object`: the class could not be created when compiled.


def encoded(request: Request, answer: object, throttle_ms: int = 0) -> Encoded | ParkedRequest[Encoded]:
    """Encode a handler's answer (a message, None, or a parked message) in the request's version."""
    if isinstance(answer, ParkedRequest):
        parked = ParkedRequest(answer.condition, answer.deadline, _encoder(request, answer.then, throttle_ms))
        parked.takes_long = answer.takes_long
        return parked
    if throttle_ms:
        set_throttle_time(answer, throttle_ms)
    return None if answer is None else encode_response(request, answer)


def set_throttle_time(answer: object, throttle_ms: int) -> None:
    """Set the throttle time in an answer that has a field for it (KIP-219)."""
    if hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = throttle_ms


def _encoder(request: Request, then: Callable[[], object], throttle_ms: int) -> Callable[[], Encoded]:
    def encode() -> Encoded:
        answer = then()
        if throttle_ms:
            set_throttle_time(answer, throttle_ms)
        return encode_response(request, answer)

    return encode


def has_slices(answer: object) -> TypeGuard[Slices]:
    """Return whether the handler answers in slices, as a generator.

    The generator of a compiled handler is no GeneratorType. A check for collections.abc.Generator takes three times as
    long.
    """
    return isinstance(answer, GeneratorType) or hasattr(answer, "send")


def slice_of(slices: Slices, resumed: Resumption | None = None) -> Wait:
    """Resume a handler until it has to wait or its slice ends.

    Raise StopIteration at the handler's end.
    """
    if resumed is None:
        wait = next(slices)
    else:
        wait = slices.send(resumed.value) if resumed.error is None else slices.throw(resumed.error)
    for _ in range(SLICE_ELEMENTS):
        if wait is not PAUSE:
            return wait
        wait = next(slices)
    return wait
