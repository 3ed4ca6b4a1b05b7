"""Execution of faults, in place of the shell's dispatch.

    request ──> is a fault armed for its API? ── no ──> dispatch
                       │ yes, and it matches
                       ├── an error response                   (error_responses)
                       ├── dispatch, then a late response      (LateResponse)
                       └── close the connection: before dispatch, or when the answer is ready (LostResponse)

A request with a fault runs in steps; threads and events that it waits for continue as usual. A delayed answer is a
parked request whose only wake-up is its deadline. If the actual request is parked too, it is woken as
usual and then wakes the delayed one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

from odradek.api.conversation import Dispatch
from odradek.api.request.call import Call, Peer
from odradek.api.request.outcome import Encoded, Outcome, StagedRequest, Steps
from odradek.api.table import BY_KEY
from odradek.base.units import SECOND_MS, CorrelationId
from odradek.core.broker.broker import Broker
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.net.shell.shell import Shell
from odradek.testing.error_responses import Answering, ErrorResponse
from odradek.testing.faults import Effect, Fault, Faults
from odradek.testing.request_topics import topics_of
from odradek.wire.request import Request
from odradek.wire.schema.compile import decode

AFTERWARDS_MS = SECOND_MS


class Injection:
    """Replacement of `shell.dispatch` that wraps the original function."""

    def __init__(self, faults: Faults, shell: Shell) -> None:
        self.faults = faults
        self.shell = shell
        self.dispatch = shell.dispatch

    def __call__(self, broker: Broker, peer: Peer, request: Request, now: Moment) -> Outcome:
        if not self.faults.is_armed(request.api_key):
            return self.dispatch(broker, peer, request, now)
        return _FaultyRequest(self, peer, request, now).outcome()


class _FaultyRequest:
    """One request of an API with an armed fault."""

    def __init__(self, injection: Injection, peer: Peer, request: Request, now: Moment) -> None:
        self._faults = injection.faults
        self._dispatch: Dispatch = injection.dispatch
        self._shell = injection.shell
        self._broker = injection.shell.broker
        self._peer = peer
        self._request = request
        self._now = now

    def outcome(self) -> Outcome:
        request, broker = self._request, self._broker
        api = BY_KEY[request.api_key]
        if request.api_version not in api.versions:
            return self._dispatch(broker, self._peer, request, self._now)
        body: object = decode(api.request, request.api_version, request.body)
        client_id = request.client_id or ""
        fault = self._faults.claim_fault(request.api_key, client_id, topics_of(broker, api.key, body))
        if fault is None:
            return self._dispatch(broker, self._peer, request, self._now)
        if fault.effect is Effect.ANSWER:
            correlation_id = CorrelationId(request.correlation_id)
            call = Call(broker, self._peer, request.api_version, request.client_id, correlation_id, self._now)
            return ErrorResponse(api, call, request, body, self._served).make(fault.error, fault.topic)
        return self._delay_or_drop(fault)

    def _delay_or_drop(self, fault: Fault) -> Steps:
        if fault.effect is Effect.DROP_BEFORE:
            raise ConnectionAbortedError(f"a test drops {fault.api.title} before it is handled")
        outcome = yield from self._served(self._request)
        if fault.effect is Effect.DELAY:
            # One millisecond is added because the current one has partly elapsed: the answer is never early.
            return self._delay(outcome, round(fault.seconds * SECOND_MS) + 1)
        if isinstance(outcome, ParkedRequest):
            return LostResponse(self._shell, outcome).parked
        raise ConnectionAbortedError(f"a test drops {fault.api.title} after it was handled")

    def _served(self, request: Request) -> Answering:
        """Serve the request completely, including its steps and its staged writes."""
        outcome = self._dispatch(self._broker, self._peer, request, self._now)
        if not isinstance(outcome, list | ParkedRequest | StagedRequest | None):
            outcome = yield from outcome
        if isinstance(outcome, StagedRequest):
            self._broker.commit(self._shell.now())
            return outcome.finish()
        return outcome

    def _delay(self, outcome: Encoded | ParkedRequest[Encoded], delay_ms: int) -> Encoded | ParkedRequest[Encoded]:
        if isinstance(outcome, ParkedRequest):
            return LateResponse(self._shell, outcome, delay_ms).parked
        if outcome is None:
            return None  # The request gets no answer.
        response = outcome
        return ParkedRequest(NeverFulfilled(), self._shell.now().steady + delay_ms, lambda: response)


class NeverFulfilled:
    """A condition that is never fulfilled: only the deadline ends the wait."""

    keys: Iterable[object] = ()

    def fulfilled_by(self, key: object, news: object) -> bool:
        return False


class LateResponse:
    """The owner of a parked request whose answer is sent `delay_ms` after it was ready."""

    def __init__(self, shell: Shell, inner: ParkedRequest[Encoded], delay_ms: int) -> None:
        self._shell = shell
        self._delay_ms = delay_ms
        # The latest possible time; brought forward when the actual request is woken.
        self.parked = ParkedRequest(NeverFulfilled(), inner.deadline + delay_ms, inner.then)
        inner.owner = self
        shell.broker.purgatory.park(inner)

    def answer_parked(self, parked: ParkedRequest[Encoded], now: Moment) -> None:
        purgatory = self._shell.broker.purgatory
        purgatory.forget(self.parked)
        self.parked.deadline = now.steady + self._delay_ms
        purgatory.park(self.parked)

    def send(self) -> None:
        """Do nothing: the connection has nothing to send yet."""


class Breakable(Protocol):
    """The conversation that owns a parked request."""

    def abort(self) -> None: ...


class LostResponse:
    """The owner of a parked request whose connection is closed when the answer is ready."""

    def __init__(self, shell: Shell, inner: ParkedRequest[Encoded]) -> None:
        self._shell = shell
        self.parked = ParkedRequest(NeverFulfilled(), inner.deadline + AFTERWARDS_MS, inner.then)
        inner.owner = self
        shell.broker.purgatory.park(inner)

    def answer_parked(self, parked: ParkedRequest[Encoded], now: Moment) -> None:
        self._shell.broker.purgatory.forget(self.parked)
        cast(Breakable, self.parked.owner).abort()

    def send(self) -> None:
        """Do nothing: there is nothing to send."""
