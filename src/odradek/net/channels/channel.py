"""Channel from one broker to another: requests in order over one connection, each with one outcome.

    channel.send(RequestBuilder.of(message, Response, version), then)      then(Response | FailedRequest), on the loop

The first request opens the connection, which then stays open. If the connection is lost, a policy decides about its
requests:

- `retries`: the channel sends them again, in order, on a new connection after a backoff, until each has a response or
  the channel is closed. The broker may receive a request twice. The controller sends its requests to brokers this way
  (ControllerChannelManager in Kafka).
- no retries: each request that was sent or is queued fails once, and the next request opens a new connection. This
  suits requests whose destination may be another broker the next time (NodeToControllerChannelManager,
  TransactionMarkerChannelManager). A caller that sends a failed request again waits first.

Errors that a new connection cannot fix fail the request under both policies: a version that the broker does not
support, or a message that cannot be written.

The channel calls `then` once for each request, in order, and never within `send` or `close`. No request has a task or a
timer of its own. A channel has one address; a broker that registers again at another address gets another channel.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from odradek.base.units import SECOND_MS
from odradek.core.kernel.cluster_view import Endpoint
from odradek.net.channels.channel_connection import ChannelConnection
from odradek.net.channels.channel_requests import (
    ChannelConfig,
    FailedRequest,
    FailureReason,
    PendingRequest,
    RequestBuilder,
    UnsupportedVersion,
)
from odradek.tls.ssl_contexts import Contexts
from odradek.wire.schema.primitives import Buffer

log = logging.getLogger(__name__)

COMPLETED_PER_TURN = 100  # Lets the loop's other work run in between when ten thousand requests fail at once.
JITTER = 0.2  # Fraction by which a backoff varies, so that brokers do not all reconnect at once.
DOUBLINGS_MAX = 20

T = TypeVar("T")


class ChannelFull(Exception):
    """Raised if the channel's queue of requests is full; the text names the broker."""


class Channel:
    """Requests from one user to one broker; log lines call the broker by `name`, such as "broker 2"."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        config: ChannelConfig,
        *,
        name: str,
        tls: Contexts | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Create a channel that connects on the first request.

        `tls` supplies a client context for each connection; `draw` returns a number from 0 to 1 for each backoff.
        """
        self._loop = loop
        self._endpoint = endpoint
        self._config = config
        self._description = f"{name} at {_address(endpoint)}"
        self._tls = tls
        self._draw = draw
        self._connection: ChannelConnection | None = None
        self._backoff: asyncio.TimerHandle | None = None
        self._failures = 0  # Since the last response.
        self._is_unavailable = False  # An outage was logged, and no response has come since.
        self._is_closed = False
        # A request moves through these queues from first to last.
        self._waiting: deque[PendingRequest[Any]] = deque()
        self._in_flight: deque[PendingRequest[Any]] = deque()
        self._completed: deque[PendingRequest[Any]] = deque()
        self._is_completing = False  # A call of _complete_next is scheduled.

    def __len__(self) -> int:
        """Return the number of requests without an outcome or whose `then` has not been called yet."""
        return len(self._waiting) + len(self._in_flight) + len(self._completed)

    def send(self, builder: RequestBuilder[T], then: Callable[[T | FailedRequest], None]) -> None:
        """Send a request once the requests before it allow; after `close`, fail it as CLOSED.

        Raises ChannelFull, without any effect, if `queued_max` requests are already queued.
        """
        if len(self) >= self._config.queued_max:
            raise ChannelFull(f"the queue of requests to {self._description} is full: {len(self)} requests are queued")
        self._waiting.append(PendingRequest(builder, then))
        if self._is_closed:
            self._fail_all(FailedRequest(FailureReason.CLOSED, "the channel is closed"))
        else:
            self._send_waiting()

    def close(self) -> None:
        """Close the connection and fail all requests without an outcome as CLOSED.

        With `retries`, no `then` is called.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._backoff is not None:
            self._backoff.cancel()
            self._backoff = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._fail_all(FailedRequest(FailureReason.CLOSED, "the channel is closed"))

    # Callbacks from the connection.

    def on_opened(self) -> None:
        self._send_waiting()

    def on_writable(self) -> None:
        self._send_waiting()

    def on_response(self, pending: PendingRequest[Any], frame: Buffer) -> None:
        pending.decode(frame)
        self._failures = 0
        if self._is_unavailable:
            self._is_unavailable = False
            log.info("%s is available again", self._description)
        self._complete()

    def on_lost(self, failed: FailedRequest) -> None:
        self._connection = None
        if not self._waiting and not self._in_flight:
            return  # Idle: the next request finds out whether the broker is reachable.
        self._report(failed)
        if not self._config.retries:
            self._fail_all(failed)
            return
        while self._in_flight:
            pending = self._in_flight.pop()
            pending.outcome = None
            self._waiting.appendleft(pending)
        self._backoff = self._loop.call_later(self._backoff_seconds(), self._try_again)

    # From waiting to in flight.

    def _send_waiting(self) -> None:
        """Send the requests that may be sent now; connect first if there is no connection."""
        if self._is_closed or not self._waiting or self._backoff is not None:
            return
        if self._connection is None:
            self._connection = ChannelConnection(self._loop, self, self._config)
            self._connection.connect(self._endpoint, None if self._tls is None else self._tls.context())
            return
        while self._waiting and self._connection.can_send and len(self._in_flight) < self._config.in_flight_max:
            self._send(self._connection, self._waiting.popleft())

    def _send(self, connection: ChannelConnection, pending: PendingRequest[Any]) -> None:
        self._in_flight.append(pending)
        try:
            connection.send(pending)
            return
        except UnsupportedVersion as error:
            failed = FailedRequest(FailureReason.UNSUPPORTED_VERSION, str(error))
        except Exception as error:  # A fault of the message; sending it again would fail the same way.
            failed = FailedRequest(
                FailureReason.UNSENDABLE, f"failed to encode {pending.builder.request.__name__}: {error}"
            )
        log.error("failed to send a request to %s: %s", self._description, failed.text)
        pending.outcome = failed
        self._complete_soon()

    def _backoff_seconds(self) -> float:
        config = self._config
        milliseconds = min(config.backoff_ms << min(self._failures, DOUBLINGS_MAX), config.backoff_ms_max)
        self._failures += 1
        return milliseconds * (1 - JITTER + 2 * JITTER * self._draw()) / SECOND_MS

    def _try_again(self) -> None:
        self._backoff = None
        self._send_waiting()

    # From in flight to completed.

    def _fail_all(self, failed: FailedRequest) -> None:
        """Fail all requests without an outcome; drop them if the channel is closed and retries."""
        for pending in (*self._in_flight, *self._waiting):
            if pending.outcome is None:
                pending.outcome = failed
            self._completed.append(pending)
        self._in_flight.clear()
        self._waiting.clear()
        if self._is_closed and self._config.retries:
            self._completed.clear()
        self._complete_soon()

    def _complete_soon(self) -> None:
        if not self._is_completing:
            self._is_completing = True
            self._loop.call_soon(self._complete_next)

    def _complete_next(self) -> None:
        self._is_completing = False
        self._complete()

    def _complete(self) -> None:
        """Call `then` of the first requests with outcomes, then send requests that were queued behind them."""
        while self._in_flight and self._in_flight[0].outcome is not None:
            self._completed.append(self._in_flight.popleft())
        left = COMPLETED_PER_TURN
        while self._completed and left:
            left -= 1
            self._call(self._completed.popleft())
        if self._completed:
            self._complete_soon()
        self._send_waiting()

    def _call(self, pending: PendingRequest[Any]) -> None:
        try:
            pending.complete()
        except Exception as error:  # A bug of this request's caller; it must not affect the next request.
            name = pending.builder.request.__name__
            context = {"message": f"failed to process the response to {name}", "exception": error}
            self._loop.call_exception_handler(context)

    def _report(self, failed: FailedRequest) -> None:
        """Log an outage, once until the broker has responded again."""
        if self._is_unavailable:
            return
        self._is_unavailable = True
        count = len(self._waiting) + len(self._in_flight)
        verb = "queued" if self._config.retries else "failed"
        consequence = f"1 request {verb}" if count == 1 else f"{count} requests {verb}"
        log.warning("%s is unavailable: %s; %s", self._description, failed.text, consequence)


def _address(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"
