"""Request log: one line for each request, like Kafka's kafka.request.logger.

Logger `odradek.request` at DEBUG. The request log wraps the shell's dispatch at startup, and only if enabled, so that
it costs nothing otherwise.

    DEBUG odradek.request: Produce v9 completed | connection=... client_id=... request_bytes=131 time_ms=0.214 ...

A parked request is logged when it is answered, with the time since its arrival. If its connection closes first, it is
never answered and not logged.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, cast

from odradek.api.conversation import Dispatch
from odradek.api.request.call import Peer
from odradek.api.request.log_fields import Fields, of_request
from odradek.api.request.outcome import Done, Encoded, Outcome, StagedRequest, Steps
from odradek.app.logging.log_format import REQUESTS, iso_time
from odradek.base.errors import ErrorCode
from odradek.core.broker.broker import Broker
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.net.shell.shell import Shell
from odradek.wire.catalog import APIS
from odradek.wire.client_codec import decode_response
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.primitives import IN_MEMORY, Chunk, Primitive
from odradek.wire.schema.schema import schema_of

log = logging.getLogger(REQUESTS)

DECODED_BYTES_MAX = 64 * 1024  # Larger responses are not searched for errors.
LENGTH_BYTES = 4


def install(shell: Shell) -> None:
    """Log this broker's requests from now on."""
    shell.dispatch = partial(_dispatch_logged, shell.dispatch)
    shell.must_dispatch_each = lambda api_key: True


class _RequestFacts(NamedTuple):
    """Facts of a request before its handling, which changes the request."""

    fields: Fields
    began: float

    @property
    def name(self) -> str:
        return f"{self.fields['api']} v{self.fields['api_version']}"


class _LoggedStagedRequest(StagedRequest):
    """Staged Produce request that is logged when it is answered."""

    def __init__(self, facts: _RequestFacts, request: Request, staged: StagedRequest) -> None:
        self._facts = facts
        self._request = request
        self._staged = staged

    def finish(self) -> Encoded | ParkedRequest[Encoded]:
        with _log_failure(self._facts):
            outcome = self._staged.finish()
        return _log_response(self._facts, self._request, outcome)


def _dispatch_logged(dispatch: Dispatch, broker: Broker, peer: Peer, request: Request, now: Moment) -> Outcome:
    fields = of_request(peer, request)
    fields |= {"request_bytes": request.size, "arrived": iso_time(time.time())}
    facts = _RequestFacts(fields, time.monotonic())
    with _log_failure(facts):
        outcome = dispatch(broker, peer, request, now)
    return (
        _log_after_steps(facts, request, outcome)
        if isinstance(outcome, Generator)
        else _log_outcome(facts, request, outcome)
    )


def _log_after_steps(facts: _RequestFacts, request: Request, steps: Steps) -> Steps:
    with _log_failure(facts):
        outcome = yield from steps
    return _log_outcome(facts, request, outcome)


def _log_outcome(facts: _RequestFacts, request: Request, outcome: Done) -> Done:
    return (
        _LoggedStagedRequest(facts, request, outcome)
        if isinstance(outcome, StagedRequest)
        else _log_response(facts, request, outcome)
    )


@contextmanager
def _log_failure(facts: _RequestFacts) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _write(facts, "failed", {"reason": str(error) or type(error).__name__})
        raise


def _log_response(
    facts: _RequestFacts, request: Request, outcome: Encoded | ParkedRequest[Encoded]
) -> Encoded | ParkedRequest[Encoded]:
    if isinstance(outcome, ParkedRequest):
        outcome.then = partial(_log_delayed_response, facts, request, outcome.then)
    elif outcome is None:
        _write(facts, "completed without a response", {})
    else:
        _write(facts, "completed", _response_fields(request, outcome))
    return outcome


def _log_delayed_response(facts: _RequestFacts, request: Request, then: Callable[[], Encoded]) -> Encoded:
    """Answer a parked request and log it."""
    response = then()
    _write(facts, "completed after a wait", {} if response is None else _response_fields(request, response))
    return response


def _write(facts: _RequestFacts, outcome: str, outcome_fields: Fields) -> None:
    elapsed = {"time_ms": round((time.monotonic() - facts.began) * 1000, 3)}
    log.debug("%s %s", facts.name, outcome, extra=facts.fields | elapsed | outcome_fields)


def _response_fields(request: Request, response: list[Chunk]) -> Fields:
    size = sum(len(chunk) if isinstance(chunk, IN_MEMORY) else chunk.size for chunk in response)
    fields: Fields = {"response_bytes": size}
    if len(response) == 1 and size <= DECODED_BYTES_MAX:
        errors = _errors_in(request, cast(bytes, response[0]))
        if errors:
            fields["errors"] = errors
    return fields


def _errors_in(request: Request, frame: bytes) -> str:
    """Return `CODE:count` for each error in a response without file slices."""
    response_class: type[object] = APIS[ApiKey(request.api_key)][1]
    _, response = decode_response(response_class, request.api_version, frame[LENGTH_BYTES:])
    counted = Counter(_codes(response))
    return ",".join(f"{name}:{count}" for name, count in counted.items())


def _codes(message: object) -> Iterator[str]:
    """Yield every error code in a message and its nested structures."""
    for field in schema_of(type(message)).fields:
        value: object = getattr(message, field.name)
        if field.name == "error_code":
            assert isinstance(value, int)
            if value != ErrorCode.NONE:
                yield ErrorCode(value).name
        elif not isinstance(field.type, Primitive) and value is not None:
            for one in value if isinstance(value, list) else [value]:
                yield from _codes(one)
