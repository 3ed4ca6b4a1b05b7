"""One connection's requests, from received bytes to answers in order: what h11 is for bytes, for requests.  No I/O.

    bytes  ──> receive ──> step ──> gate ──> dispatch ──┬─ Encoded ──────────────> data_to_send
                             ^                          ├─ Staged ──> commit ─────>
                             │                          ├─ Parked ──> purgatory ──>  (the next request is handled)
                             └──── under way <──────────┴─ Steps                     (the next request waits)

`step` does one request, a run of produces, or one slice of a long request, and says whether more can be done at once;
when a turn is over is for the caller to say, who then calls `commit`.  A request in steps is the one state in which a
request waits before it is staged: for its next slice, for a thread, for an event.  What follows on the connection waits
behind it, other connections pass.

The gate is asked about each request, before its handler and before the fast paths, and again when a request in steps
goes on, or all of a large one is there.  A request that it throttles is served, its answer says so, and the connection
is muted from then on (KIP-219): until `mute_until` nothing is handled.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol, TypeAlias, cast

from odradek.api.produce import large_produce
from odradek.api.produce.large_produce import LargeProduce
from odradek.api.request import log_fields
from odradek.api.request.admission import Admission
from odradek.api.request.call import Peer
from odradek.api.request.gate import Gate
from odradek.api.request.outcome import PAUSE, Done, Encoded, Outcome, Resumed, Staged, Steps, Wait
from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import Work
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.parked import Parked
from odradek.wire.connection import Connection
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import IN_MEMORY, Buffer, Chunk

log = logging.getLogger(__name__)

NOBODY = Connection(buffer_bytes=0)
QUICK_PER_STEP = 64  # A millisecond or two.

Dispatch = Callable[[Broker, Peer, Request, Moment], Outcome]


class Host(Protocol):
    """Gives the conversations of one broker what they share."""

    @property
    def broker(self) -> Broker: ...

    @property
    def gate(self) -> Gate: ...

    @property
    def dispatch(self) -> Dispatch:
        """The function that handles a request, or a wrapper of it: a request log, a fault that a test injects."""

    def wants_each(self, api_key: int) -> bool:
        """True if `dispatch` must see every request of the API, the large ones too."""

    def answered(self, request: Request, began: float) -> None:
        """Counts a request that was answered; `began` is the time that `step` was given when it came."""


class Ending:
    """Says why a conversation is over.  Answers that are ready are sent first, unless a bug of ours has broken it."""

    def __init__(self, reason: Exception, request: Request | None = None, *, is_broken: bool = False) -> None:
        # The reason is kept, and its traceback would keep the frames that hold all that was read.
        self.reason = reason.with_traceback(None)
        self.request = request
        self.is_broken = is_broken


# A request in steps, with its steps and the time it came; a parked request, with the time it came and the milliseconds
# for which its answer mutes the connection.
_UnderWay: TypeAlias = tuple[Request, Steps, float]
_Waiting: TypeAlias = tuple[Request, float, int]


class Conversation:
    """The requests of one connection; `ready` is called when answers or more work appear outside of `step`."""

    def __init__(self, host: Host, peer: Peer, wire: Connection, ready: Callable[[], None]) -> None:
        self._host = host
        self._ready = ready
        self.peer = peer
        self.wire = wire
        self.ending: Ending | None = None
        self.mute_until = 0  # On the steady clock.
        self._is_throttled = False  # A throttled request waits for its answer; the requests after it wait, too.
        self._is_held_up = False  # A request is in steps, throttled or muted: the requests after it may have to wait.
        self._held_bytes = 0  # Bytes of answers in memory that were made and not yet taken by `data_to_send`.
        self._unhandled: deque[Request] = deque()
        self._staged: list[tuple[Request, Staged]] = []
        self._parked: dict[Parked[Encoded], _Waiting] = {}
        self._under_way: _UnderWay | None = None
        self._waits_for: Wait = PAUSE  # What the request in steps waits for.
        self._came: tuple[object, Exception | None] = (None, None)  # What that came to: a value, or an error.
        self._tried_large = -1  # The sequence number of the request that was last tried as a large produce.

    # Bytes in.

    def received(self, nbytes: int) -> int:
        """Takes `nbytes` that were put into the wire's buffer; returns how many requests they completed.

        Raises Malformed.
        """
        assert not self.has_unhandled, "their bodies lie where these bytes have gone"
        requests = self.wire.buffer_updated(nbytes)
        self._unhandled.extend(requests)
        return len(requests)

    def receive_data(self, data: Buffer) -> None:
        """Takes bytes that are not in the wire's buffer.  Raises Malformed."""
        assert not self.has_unhandled, "their bodies lie where these bytes would go"
        self._unhandled.extend(self.wire.receive_data(data))

    # State.

    @property
    def has_unhandled(self) -> bool:
        """True while received requests wait: the receive buffer must be left alone."""
        return bool(self._unhandled) or self._under_way is not None

    @property
    def staged(self) -> int:
        """The number of requests that are staged; `commit` writes and answers them."""
        return len(self._staged)

    @property
    def is_waiting(self) -> bool:
        """True while the peer waits for answers that only an event or a deadline brings."""
        return bool(self._parked) or self._waits_for is not PAUSE

    @property
    def parked(self) -> Collection[Parked[Encoded]]:
        """The requests that wait for an event or a deadline, the oldest first."""
        return self._parked.keys()

    @property
    def waits_for(self) -> Wait:
        """What the long request under way waits for, if it waits for more than its next turn."""
        return self._waits_for

    def can_go_on(self, now: Moment) -> bool:
        """True if `step` would find something to do."""
        if not self._unhandled and self._under_way is None:
            return False
        return self._waits_for is PAUSE and not self._is_throttled and now.steady >= self.mute_until

    @property
    def is_in_steps(self) -> bool:
        """True while a long request is under way."""
        return self._under_way is not None

    def is_too_far_ahead(self, requests_max: int, bytes_max: int) -> bool:
        """True if the peer has more requests without an answer, or bytes of answers not taken, than it may have."""
        return self._held_bytes > bytes_max or self.wire.in_flight - len(self._unhandled) > requests_max

    # Work.

    def step(self, now: Moment, began: float) -> bool:
        """Does a request, a run of produces, or a slice of a long request.  True if more can be done at once.

        `began` says when, on whatever clock `Host.answered` compares it with.
        """
        if self._is_held_up and not self._go_on(now):
            return self.can_go_on(now)
        unhandled, staged, peer, host = self._unhandled, self._staged, self.peer, self._host
        broker, dispatch, ask = host.broker, host.dispatch, host.gate.ask
        while unhandled:
            request = unhandled.popleft()
            admission = ask(peer, request, now)
            if admission is not peer.admission:
                peer.admitted(admission)
            try:
                outcome = dispatch(broker, peer, request, now)
            except (Malformed, ConnectionAbortedError) as reason:
                self.commit(now, began)
                self._end(reason, request)
                return False
            if isinstance(outcome, Staged):
                staged.append((request, outcome))  # Written with what else comes in this turn.
                if admission.throttle_ms:
                    self.commit(now, began)
                elif outcome.is_quick and len(staged) % QUICK_PER_STEP:
                    continue
            elif outcome is None or isinstance(outcome, (list, Parked)):
                self._handled(request, outcome, now, began)
            else:
                self._under_way, self._is_held_up = (request, outcome, began), True
                self._advance(self._under_way, None, now)
            break
        return self.can_go_on(now) if self._is_held_up else bool(unhandled)

    def _go_on(self, now: Moment) -> bool:
        """Resumes a request in steps or ends a mute that is over; True if the next requests can be handled."""
        if not self.can_go_on(now):
            return False
        self.mute_until = 0
        if self._under_way is not None:
            self._resume(self._under_way, now)
            return False
        self._is_held_up = False
        return True

    def commit(self, now: Moment, began: float) -> None:
        """Has the broker write what was staged, then answers the staged requests."""
        if not self._staged:
            return
        staged, self._staged = self._staged, []
        wire, answered = self.wire, self._host.answered
        throttle_ms = self.peer.admission.throttle_ms
        self._host.broker.commit(now)
        for request, one in staged:
            try:
                outcome = one.finish()
            except ConnectionAbortedError as reason:
                self._end(reason, request)
                return
            except AssertionError:
                raise
            except Exception as error:
                self._break(error, request)
                return
            if isinstance(outcome, list) and not throttle_ms:  # As _handled does, without the detour.
                self._held_bytes += in_memory(outcome)
                wire.answer(request, outcome)
                answered(request, began)
            else:
                self._handled(request, outcome, now, began)

    def _handled(self, request: Request, outcome: Encoded | Parked[Encoded], now: Moment, began: float) -> None:
        throttle_ms = self.peer.admission.throttle_ms
        if isinstance(outcome, Parked):
            outcome.owner = self
            self._parked[outcome] = request, began, throttle_ms
            if throttle_ms:
                self._is_throttled = self._is_held_up = True
            self._host.broker.lot.park(outcome)
        else:
            self._answer((request, began, throttle_ms), outcome, now)

    def _answer(self, waiting: _Waiting, answer: Encoded, now: Moment) -> None:
        request, began, throttle_ms = waiting
        if answer is not None:
            self._held_bytes += in_memory(answer)
        self.wire.answer(request, answer)
        self._host.answered(request, began)
        if throttle_ms:
            self._is_throttled, self._is_held_up = False, True
            self.mute_until = now.steady + throttle_ms

    # A request in steps.

    def _resume(self, under_way: _UnderWay, now: Moment) -> None:
        (value, error), self._came = self._came, (None, None)
        self._admit(under_way[0], now)  # Time has passed: the gate is asked again.
        self._advance(under_way, Resumed(now, value, error), now)

    def _admit(self, request: Request, now: Moment) -> Admission:
        admission = self._host.gate.ask(self.peer, request, now)
        if admission is not self.peer.admission:
            self.peer.admitted(admission)
        return admission

    def _advance(self, under_way: _UnderWay, resumed: Resumed | None, now: Moment) -> None:
        request, steps, began = under_way
        try:
            wait = next(steps) if resumed is None else steps.send(resumed)
        except StopIteration as done:
            self._end_steps()
            outcome: Done = done.value
            if isinstance(outcome, Staged):
                self._staged.append((request, outcome))
                self.commit(now, began)
            else:
                self._handled(request, outcome, now, began)
        except (Malformed, ConnectionAbortedError) as reason:
            self._end_steps()
            self.commit(now, began)
            self._end(reason, request)
        except AssertionError:
            raise
        except Exception as error:
            self._end_steps()
            self._break(error, request)
        else:
            self._wait_for(wait)

    def _end_steps(self) -> None:
        self._under_way, self._is_held_up = None, False

    def _wait_for(self, wait: Wait) -> None:
        self._waits_for = wait
        if isinstance(wait, Work):
            wait.then = self._worked
            self._host.broker.works.append(wait)
        elif wait is not PAUSE:
            wait.owner = self
            self._host.broker.lot.park(wait)

    def _worked(self) -> None:
        work = self._waits_for
        assert isinstance(work, Work)
        self._waits_for, self._came = PAUSE, (work.value, work.error)
        work.value = work.error = None
        self._ready()

    # Events.

    def answer_parked(self, parked: Parked[Encoded], now: Moment) -> None:
        """Answers a parked request whose event has happened or whose time is over; called by the purgatory's owner."""
        if parked is self._waits_for:
            self._waits_for, self._came = PAUSE, (parked.then(), None)
            return
        waiting = self._parked.get(parked)
        if waiting is None:
            return
        if parked.takes_long is not None and parked.takes_long():
            self._answer_beside(parked)
            return
        del self._parked[parked]
        try:
            answer = parked.then()
        except AssertionError:
            raise
        except Exception as error:
            self._break(error, waiting[0])
            return
        self._answer(waiting, answer, now)

    def _answer_beside(self, parked: Parked[Encoded]) -> None:
        """Has a thread make the answer; the parked request is then completed once more, with that answer."""
        broker = self._host.broker
        work = Work(parked.then)
        work.then = partial(broker.lot.complete, parked)
        parked.takes_long, parked.then = None, partial(_made, work)
        broker.works.append(work)

    def send(self) -> None:
        """Called when all parked requests that something has completed are answered."""
        self._ready()

    def data_to_send(self) -> list[Chunk]:
        """Returns the answers whose turn has come, each once."""
        chunks = self.wire.data_to_send()
        if chunks:
            # Only answers that wait for an earlier one stay.
            self._held_bytes = self._held_bytes - in_memory(chunks) if self._parked or self._under_way else 0
        return chunks

    def stop(self) -> None:
        """Handles nothing more, not even what was received; what waits for an event is still answered."""
        self._unhandled.clear()
        if self._under_way is not None:
            self._under_way[1].close()
            self._end_steps()
        if isinstance(self._waits_for, Work):
            self._waits_for.then = None
        elif self._waits_for is not PAUSE:
            self._host.broker.lot.forget(self._waits_for)
        self._waits_for = PAUSE

    def leave(self) -> list[Chunk]:
        """Forgets all waiting requests, as nobody is answered any more; returns the answers that are ready."""
        self.stop()
        for parked in self._parked:
            self._host.broker.lot.forget(parked)
        self._parked.clear()
        self._ready = _nobody
        wire, self.wire = self.wire, NOBODY
        wire.leave()
        return wire.data_to_send()

    def break_off(self) -> None:
        """Ends the conversation at once; answers that are ready are not sent."""
        self.ending = Ending(ConnectionAbortedError("broken off"), is_broken=True)
        self._ready()

    def _end(self, reason: Exception, request: Request) -> None:
        self._unhandled.clear()
        self.ending = Ending(reason, request)

    def _break(self, error: Exception, request: Request) -> None:
        """Ends the conversation after a bug of ours hit a request that had waited.

        There is nothing to answer that request with, and later answers would wait for it.
        """
        peer = self.peer
        fields = log_fields.of_request(peer, request)
        log.error("%r from %s failed here after it had waited", request, peer.address, extra=fields, exc_info=error)
        self._unhandled.clear()
        self.ending = Ending(error, request, is_broken=True)

    # Large produce requests, whose rest is received past the wire (large_produce.py).

    def begin_large(self, now: Moment) -> LargeProduce | None:
        """Begins a large produce whose front has been received; its rest then goes straight to the log.

        Returns None if the request has to be received as a whole.  Each request is tried once.
        """
        if self.has_unhandled or self._is_throttled or now.steady < self.mute_until:
            return None
        request = self.wire.front()
        if request is None or request.sequence == self._tried_large:
            return None
        self._tried_large = request.sequence
        if request.api_key != ApiKey.PRODUCE or self._host.wants_each(request.api_key):
            return None
        if not self._admit(request, now).is_plain:
            return None
        body_bytes = len(request.body) + self.wire.missing_bytes
        return large_produce.begin(self._host.broker, self.peer, request, body_bytes, now)

    def finish_large(self, large: LargeProduce, crc: int, tail: bytes, now: Moment) -> Staged | None:
        """Stages a large produce of which all was received.

        Returns None if it has to be handled as one that was received here: the caller then gives it to `hand_back`.
        """
        version = self.peer.admission.version
        admission = self._admit(large.request, now)
        if not admission.is_plain or admission.version != version:
            return None
        return large.finish(crc, tail, now)

    def large_done(self, request: Request, outcome: Staged, now: Moment, began: float) -> None:
        self._staged.append((request, outcome))
        self.commit(now, began)

    def hand_back(self, parts: Sequence[Buffer], size: int) -> None:
        """Receives a request of `size` bytes, which was begun as a large produce, here after all.  Raises Malformed."""
        self._unhandled.extend(self.wire.hand_back(parts, size))


def _made(work: Work) -> Encoded:
    """Returns the work's result, or raises its error; the work keeps neither."""
    value, error = work.value, work.error
    work.value = work.error = None
    if error is not None:
        raise error
    return cast(Encoded, value)


def _nobody() -> None:
    """Does nothing: the connection has left."""


def in_memory(chunks: list[Chunk]) -> int:
    """Returns how many bytes of the answers are in memory; slices of files do not count."""
    size = 0
    for chunk in chunks:
        if isinstance(chunk, IN_MEMORY):
            size += len(chunk)
    return size
