"""Requests of one connection, from received bytes to answers in order, without I/O.

Its design is that of h11, with requests in place of bytes.

    bytes  ──> receive ──> step ──> gate ──> dispatch ──┬─ Encoded ────────────────────> data_to_send
                             ^                          ├─ StagedRequest ──> commit ────>
                             │                          ├─ ParkedRequest ──> purgatory ──> (the next request is handled)
                             └──── under way <──────────┴─ Steps                           (the next request waits)

`step` handles one request, a run of produces or one slice of a long request, and returns whether more can be done at
once. The caller decides when a turn ends, and then calls `commit`. A request in steps is the only state in which a
request waits before it is staged: for its next slice, for a thread, or for an event. Later requests of the same
connection wait behind it; other connections do not.

The gate checks each request before its handler and before the fast paths. It checks again when a request in steps
resumes, and when a large request has been received completely. A throttled request is served, and its answer carries
the throttle time. The connection is muted from then on (KIP-219): nothing is handled before `mute_until`.
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
from odradek.api.request.outcome import PAUSE, Done, Encoded, Outcome, Resumption, StagedRequest, Steps, Wait
from odradek.core.broker.broker import Broker
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.kernel.work import Work
from odradek.wire.connection import Connection
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import IN_MEMORY, Buffer, Chunk

log = logging.getLogger(__name__)

NO_CONNECTION = Connection(buffer_bytes=0)
QUICK_PER_STEP = 64  # One or two milliseconds.

Dispatch = Callable[[Broker, Peer, Request, Moment], Outcome]


class Host(Protocol):
    """The objects that the conversations of one broker share."""

    @property
    def broker(self) -> Broker: ...

    @property
    def gate(self) -> Gate: ...

    @property
    def dispatch(self) -> Dispatch:
        """Return the function that handles a request; a request log or a test may wrap it."""

    def must_dispatch_each(self, api_key: int) -> bool:
        """Return whether `dispatch` must see every request of the API, including large ones."""

    def on_answered(self, request: Request, began: float) -> None:
        """Count an answered request; `began` is the time that `step` was given when the request arrived."""


class CloseReason:
    """The reason why a conversation is over.

    Answers that are ready are sent first, unless a bug of ours has broken the conversation.
    """

    def __init__(self, reason: Exception, request: Request | None = None, *, is_broken: bool = False) -> None:
        # The reason is kept, and its traceback would keep the frames that hold all the data read.
        self.reason = reason.with_traceback(None)
        self.request = request
        self.is_broken = is_broken


# _UnderWay: a request in steps, its steps and its arrival time. _Waiting: a parked request, its arrival time and the
# milliseconds for which its answer mutes the connection.
_UnderWay: TypeAlias = tuple[Request, Steps, float]
_Waiting: TypeAlias = tuple[Request, float, int]


class Conversation:
    """The requests of one connection; `ready` is called when answers or work appear outside of `step`."""

    def __init__(self, host: Host, peer: Peer, wire: Connection, ready: Callable[[], None]) -> None:
        self._host = host
        self._ready = ready
        self.peer = peer
        self.wire = wire
        self.ending: CloseReason | None = None
        self.mute_until = 0  # On the steady clock.
        self._is_throttled = False  # A throttled request waits for its answer, and later requests wait, too.
        self._is_blocked = False  # A request is in steps, throttled or muted: later requests may have to wait.
        self._held_bytes = 0  # Bytes of answers in memory that `data_to_send` has not taken yet.
        self._unhandled: deque[Request] = deque()
        self._staged: list[tuple[Request, StagedRequest]] = []
        self._parked: dict[ParkedRequest[Encoded], _Waiting] = {}
        self._under_way: _UnderWay | None = None
        self._waits_for: Wait = PAUSE  # The event or work that the request in steps waits for.
        self._wait_result: tuple[object, Exception | None] = (None, None)  # A value, or an error.
        self._tried_large = -1  # Sequence number of the request that was last tried as a large produce.

    # Receiving.

    def received(self, nbytes: int) -> int:
        """Accept `nbytes` that were put into the wire's buffer; return how many requests they completed.

        Raise Malformed.
        """
        assert not self.has_unhandled, "their bodies are in the memory of the replaced bytes"
        requests = self.wire.buffer_updated(nbytes)
        self._unhandled.extend(requests)
        return len(requests)

    def receive_data(self, data: Buffer) -> None:
        """Accept bytes that are not in the wire's buffer. Raise Malformed."""
        assert not self.has_unhandled, "their bodies are in the memory of the received bytes"
        self._unhandled.extend(self.wire.receive_data(data))

    # State.

    @property
    def has_unhandled(self) -> bool:
        """Return whether received requests wait, so that the receive buffer must not change."""
        return bool(self._unhandled) or self._under_way is not None

    @property
    def staged(self) -> int:
        """Return the number of staged requests; `commit` writes and answers them."""
        return len(self._staged)

    @property
    def is_waiting(self) -> bool:
        """Return whether the peer waits for answers that only an event or a deadline brings."""
        return bool(self._parked) or self._waits_for is not PAUSE

    @property
    def parked(self) -> Collection[ParkedRequest[Encoded]]:
        """Return the requests that wait for an event or a deadline, oldest first."""
        return self._parked.keys()

    @property
    def waits_for(self) -> Wait:
        """Return the wait of the long request under way; PAUSE if it waits only for its next turn."""
        return self._waits_for

    def can_continue(self, now: Moment) -> bool:
        """Return whether `step` would find work."""
        if not self._unhandled and self._under_way is None:
            return False
        return self._waits_for is PAUSE and not self._is_throttled and now.steady >= self.mute_until

    @property
    def is_in_steps(self) -> bool:
        """Return whether a long request is under way."""
        return self._under_way is not None

    def is_too_far_ahead(self, requests_max: int, bytes_max: int) -> bool:
        """Return whether the peer exceeds its limit of unanswered requests or of answer bytes not taken."""
        return self._held_bytes > bytes_max or self.wire.in_flight - len(self._unhandled) > requests_max

    # Work.

    def step(self, now: Moment, began: float) -> bool:
        """Handle a request, a run of produces or one slice; return whether more can be done at once.

        `began` is the start time, on the clock that `Host.on_answered` compares it with.
        """
        if self._is_blocked and not self._resume_or_unmute(now):
            return self.can_continue(now)
        unhandled, staged, peer, host = self._unhandled, self._staged, self.peer, self._host
        broker, dispatch, admit = host.broker, host.dispatch, host.gate.admit
        while unhandled:
            request = unhandled.popleft()
            admission = admit(peer, request, now)
            if admission is not peer.admission:
                peer.set_admission(admission)
            try:
                outcome = dispatch(broker, peer, request, now)
            except (Malformed, ConnectionAbortedError) as reason:
                self.commit(now, began)
                self._end(reason, request)
                return False
            if isinstance(outcome, StagedRequest):
                staged.append((request, outcome))  # Written together with the other batches of this turn.
                if admission.throttle_ms:
                    self.commit(now, began)
                elif outcome.is_quick and len(staged) % QUICK_PER_STEP:
                    continue
            elif outcome is None or isinstance(outcome, (list, ParkedRequest)):
                self._on_handled(request, outcome, now, began)
            else:
                self._under_way, self._is_blocked = (request, outcome, began), True
                self._advance(self._under_way, None, now)
            break
        return self.can_continue(now) if self._is_blocked else bool(unhandled)

    def _resume_or_unmute(self, now: Moment) -> bool:
        """Resume a request in steps or end an expired mute; return whether the next requests can be handled."""
        if not self.can_continue(now):
            return False
        self.mute_until = 0
        if self._under_way is not None:
            self._resume(self._under_way, now)
            return False
        self._is_blocked = False
        return True

    def commit(self, now: Moment, began: float) -> None:
        """Let the broker write the staged batches, then answer their requests."""
        if not self._staged:
            return
        staged, self._staged = self._staged, []
        wire, on_answered = self.wire, self._host.on_answered
        throttle_ms = self.peer.admission.throttle_ms
        self._host.broker.commit(now)
        for request, staged_request in staged:
            try:
                outcome = staged_request.finish()
            except ConnectionAbortedError as reason:
                self._end(reason, request)
                return
            except AssertionError:
                raise
            except Exception as error:
                self._end_broken(error, request)
                return
            if isinstance(outcome, list) and not throttle_ms:  # As in _on_handled, without the extra call.
                self._held_bytes += in_memory(outcome)
                wire.answer(request, outcome)
                on_answered(request, began)
            else:
                self._on_handled(request, outcome, now, began)

    def _on_handled(
        self, request: Request, outcome: Encoded | ParkedRequest[Encoded], now: Moment, began: float
    ) -> None:
        throttle_ms = self.peer.admission.throttle_ms
        if isinstance(outcome, ParkedRequest):
            outcome.owner = self
            self._parked[outcome] = request, began, throttle_ms
            if throttle_ms:
                self._is_throttled = self._is_blocked = True
            self._host.broker.purgatory.park(outcome)
        else:
            self._answer((request, began, throttle_ms), outcome, now)

    def _answer(self, waiting: _Waiting, answer: Encoded, now: Moment) -> None:
        request, began, throttle_ms = waiting
        if answer is not None:
            self._held_bytes += in_memory(answer)
        self.wire.answer(request, answer)
        self._host.on_answered(request, began)
        if throttle_ms:
            self._is_throttled, self._is_blocked = False, True
            self.mute_until = now.steady + throttle_ms

    # A request in steps.

    def _resume(self, under_way: _UnderWay, now: Moment) -> None:
        (value, error), self._wait_result = self._wait_result, (None, None)
        self._admit(under_way[0], now)  # Time has passed, so the gate checks again.
        self._advance(under_way, Resumption(now, value, error), now)

    def _admit(self, request: Request, now: Moment) -> Admission:
        admission = self._host.gate.admit(self.peer, request, now)
        if admission is not self.peer.admission:
            self.peer.set_admission(admission)
        return admission

    def _advance(self, under_way: _UnderWay, resumed: Resumption | None, now: Moment) -> None:
        request, steps, began = under_way
        try:
            wait = next(steps) if resumed is None else steps.send(resumed)
        except StopIteration as done:
            self._end_steps()
            outcome: Done = done.value
            if isinstance(outcome, StagedRequest):
                self._staged.append((request, outcome))
                self.commit(now, began)
            else:
                self._on_handled(request, outcome, now, began)
        except (Malformed, ConnectionAbortedError) as reason:
            self._end_steps()
            self.commit(now, began)
            self._end(reason, request)
        except AssertionError:
            raise
        except Exception as error:
            self._end_steps()
            self._end_broken(error, request)
        else:
            self._wait_for(wait)

    def _end_steps(self) -> None:
        self._under_way, self._is_blocked = None, False

    def _wait_for(self, wait: Wait) -> None:
        self._waits_for = wait
        if isinstance(wait, Work):
            wait.then = self._on_work_done
            self._host.broker.works.append(wait)
        elif wait is not PAUSE:
            wait.owner = self
            self._host.broker.purgatory.park(wait)

    def _on_work_done(self) -> None:
        work = self._waits_for
        assert isinstance(work, Work)
        self._waits_for, self._wait_result = PAUSE, (work.value, work.error)
        work.value = work.error = None
        self._ready()

    # Events.

    def answer_parked(self, parked: ParkedRequest[Encoded], now: Moment) -> None:
        """Answer a parked request that is completed or expired, or resume the request in steps.

        The purgatory's owner calls this.
        """
        if parked is self._waits_for:
            self._waits_for, self._wait_result = PAUSE, (parked.then(), None)
            return
        waiting = self._parked.get(parked)
        if waiting is None:
            return
        if parked.takes_long is not None and parked.takes_long():
            self._answer_in_thread(parked)
            return
        del self._parked[parked]
        try:
            answer = parked.then()
        except AssertionError:
            raise
        except Exception as error:
            self._end_broken(error, waiting[0])
            return
        self._answer(waiting, answer, now)

    def _answer_in_thread(self, parked: ParkedRequest[Encoded]) -> None:
        """Make the answer in a thread; the parked request is then completed again, with that answer."""
        broker = self._host.broker
        work = Work(parked.then)
        work.then = partial(broker.purgatory.complete, parked)
        parked.takes_long, parked.then = None, partial(_result_of, work)
        broker.works.append(work)

    def send(self) -> None:
        """Announce the answers; called after all completed parked requests are answered."""
        self._ready()

    def data_to_send(self) -> list[Chunk]:
        """Return the answers whose turn has come, each once."""
        chunks = self.wire.data_to_send()
        if chunks:
            # Only answers that wait for an earlier one remain.
            self._held_bytes = self._held_bytes - in_memory(chunks) if self._parked or self._under_way else 0
        return chunks

    def stop(self) -> None:
        """Stop handling requests, even received ones; requests that wait for an event are still answered."""
        self._unhandled.clear()
        if self._under_way is not None:
            self._under_way[1].close()
            self._end_steps()
        if isinstance(self._waits_for, Work):
            self._waits_for.then = None
        elif self._waits_for is not PAUSE:
            self._host.broker.purgatory.forget(self._waits_for)
        self._waits_for = PAUSE

    def leave(self) -> list[Chunk]:
        """Drop all waiting requests, because nobody receives their answers; return the answers that are ready."""
        self.stop()
        for parked in self._parked:
            self._host.broker.purgatory.forget(parked)
        self._parked.clear()
        self._ready = _do_nothing
        wire, self.wire = self.wire, NO_CONNECTION
        wire.leave()
        return wire.data_to_send()

    def abort(self) -> None:
        """End the conversation at once; answers that are ready are not sent."""
        self.ending = CloseReason(ConnectionAbortedError("aborted"), is_broken=True)
        self._ready()

    def _end(self, reason: Exception, request: Request) -> None:
        self._unhandled.clear()
        self.ending = CloseReason(reason, request)

    def _end_broken(self, error: Exception, request: Request) -> None:
        """End the conversation after a bug of ours hit a request that had waited.

        No answer exists for that request, and later answers would wait for it.
        """
        peer = self.peer
        fields = log_fields.of_request(peer, request)
        log.error("unexpected error in %r from %s after a wait", request, peer.address, extra=fields, exc_info=error)
        self._unhandled.clear()
        self.ending = CloseReason(error, request, is_broken=True)

    # Large produce requests, whose rest bypasses the wire (api/produce/large_produce.py).

    def begin_large(self, now: Moment) -> LargeProduce | None:
        """Start a large produce whose front has been received; its rest then goes straight to the log.

        Return None if the request has to be received as a whole. Each request is tried once.
        """
        if self.has_unhandled or self._is_throttled or now.steady < self.mute_until:
            return None
        request = self.wire.front()
        if request is None or request.sequence == self._tried_large:
            return None
        self._tried_large = request.sequence
        if request.api_key != ApiKey.PRODUCE or self._host.must_dispatch_each(request.api_key):
            return None
        if not self._admit(request, now).is_plain:
            return None
        body_bytes = len(request.body) + self.wire.missing_bytes
        return large_produce.begin_large_produce(self._host.broker, self.peer, request, body_bytes, now)

    def finish_large(self, large: LargeProduce, crc: int, tail: bytes, now: Moment) -> StagedRequest | None:
        """Stage a large produce that has been received completely.

        Return None if it must be handled like an ordinary request: the caller then passes it to `hand_back`.
        """
        version = self.peer.admission.version
        admission = self._admit(large.request, now)
        if not admission.is_plain or admission.version != version:
            return None
        return large.finish(crc, tail, now)

    def on_large_received(self, request: Request, outcome: StagedRequest, now: Moment, began: float) -> None:
        self._staged.append((request, outcome))
        self.commit(now, began)

    def hand_back(self, parts: Sequence[Buffer], size: int) -> None:
        """Receive a request of `size` bytes here that was started as a large produce.

        Raise Malformed.
        """
        self._unhandled.extend(self.wire.hand_back(parts, size))


def _result_of(work: Work) -> Encoded:
    """Return the work's result, or raise its error; the work keeps neither."""
    value, error = work.value, work.error
    work.value = work.error = None
    if error is not None:
        raise error
    return cast(Encoded, value)


def _do_nothing() -> None:
    """Do nothing: the connection has left."""


def in_memory(chunks: list[Chunk]) -> int:
    """Return how many bytes of the answers are in memory; file slices are not counted."""
    size = 0
    for chunk in chunks:
        if isinstance(chunk, IN_MEMORY):
            size += len(chunk)
    return size
