"""How one broker asks another: requests in order over one connection, each with one outcome.

    channel.send(RequestBuilder.of(message, Response, version), then)      then(Response | Failed), on the loop

The connection is made for the first request and kept.  What becomes of requests when it is lost is the policy:

- `retries`: they are sent again, in order, on a new connection after a backoff, until each is answered or the channel
  closed; the broker may get one of them twice.  So the controller tells brokers what they are
  (ControllerChannelManager in Kafka).
- without: each that was sent or waits fails, once, and the next request connects anew.  So a broker asks who may be
  another one the next time (NodeToControllerChannelManager, TransactionMarkerChannelManager); whoever sends a failed
  request again waits before.

What no connection can help, a version that the broker has not or a message that can't be written, fails in both.

`then` is called once for each request and in their order, never within `send` or `close`.  No request has a task or a
timer of its own.  A channel is of one address: a broker that registers anew at another one gets another channel.
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
    Failed,
    PendingRequest,
    Reason,
    RequestBuilder,
    UnsupportedVersion,
)
from odradek.tls.ssl_contexts import Contexts
from odradek.wire.schema.primitives import Buffer

log = logging.getLogger(__name__)

COMPLETED_PER_TURN = 100  # When ten thousand fail at once, the loop's others have their turns in between.
JITTER = 0.2  # The part by which a backoff is longer or shorter, so that brokers do not come back all at once.
DOUBLINGS_MAX = 20

T = TypeVar("T")


class ChannelFull(Exception):
    """Raised if as many requests wait as the channel takes; the text names the broker."""


class Channel:
    """The requests of one user to one broker, which `name` calls in log lines: "broker 2"."""

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
        """`tls` gives a client's context for each connection; `draw` a number from 0 to 1 for each backoff."""
        self._loop = loop
        self._endpoint = endpoint
        self._config = config
        self._where = f"{name} at {_address(endpoint)}"
        self._tls = tls
        self._draw = draw
        self._connection: ChannelConnection | None = None
        self._backoff: asyncio.TimerHandle | None = None
        self._failures = 0  # Since the last response.
        self._is_out = False  # An outage was logged, and no response has come since.
        self._is_closed = False
        # A request goes from the first to the last.
        self._waiting: deque[PendingRequest[Any]] = deque()
        self._in_flight: deque[PendingRequest[Any]] = deque()
        self._completed: deque[PendingRequest[Any]] = deque()
        self._is_completing = False  # A call of _complete is on its way.

    def __len__(self) -> int:
        """Returns how many requests have no outcome yet, or their `then` has not been called."""
        return len(self._waiting) + len(self._in_flight) + len(self._completed)

    def send(self, builder: RequestBuilder[T], then: Callable[[T | Failed], None]) -> None:
        """Sends a request when those before it allow; after `close` as one that was sent before it.

        Raises ChannelFull, and nothing happened, if as many requests wait as `queued_max` says.
        """
        if len(self) >= self._config.queued_max:
            raise ChannelFull(f"{len(self)} requests to {self._where} wait: that is as many as may")
        self._waiting.append(PendingRequest(builder, then))
        if self._is_closed:
            self._give_up(Failed(Reason.CLOSED, "the channel is closed"))
        else:
            self._go_on()

    def close(self) -> None:
        """Closes the connection.  Requests without an outcome fail as CLOSED; with `retries` no `then` is called."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._backoff is not None:
            self._backoff.cancel()
            self._backoff = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._give_up(Failed(Reason.CLOSED, "the channel is closed"))

    # The connection's side.

    def opened(self) -> None:
        self._go_on()

    def writable(self) -> None:
        self._go_on()

    def received(self, pending: PendingRequest[Any], frame: Buffer) -> None:
        pending.decode(frame)
        self._failures = 0
        if self._is_out:
            self._is_out = False
            log.info("%s can be reached again", self._where)
        self._complete()

    def lost(self, failed: Failed) -> None:
        self._connection = None
        if not self._waiting and not self._in_flight:
            return  # Idle: the next request finds out whether there is somebody.
        self._report(failed)
        if not self._config.retries:
            self._give_up(failed)
            return
        while self._in_flight:
            pending = self._in_flight.pop()
            pending.outcome = None
            self._waiting.appendleft(pending)
        self._backoff = self._loop.call_later(self._backoff_seconds(), self._try_again)

    # From waiting to in flight.

    def _go_on(self) -> None:
        """Sends what may be sent now; connects first if there is no connection."""
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
            failed = Failed(Reason.UNSUPPORTED_VERSION, str(error))
        except Exception as error:  # Of the message: it would be the same the next time.
            failed = Failed(Reason.UNSENDABLE, f"{pending.builder.request.__name__} can't be sent: {error}")
        log.error("a request to %s fails: %s", self._where, failed.text)
        pending.outcome = failed
        self._complete_soon()

    def _backoff_seconds(self) -> float:
        config = self._config
        milliseconds = min(config.backoff_ms << min(self._failures, DOUBLINGS_MAX), config.backoff_ms_max)
        self._failures += 1
        return milliseconds * (1 - JITTER + 2 * JITTER * self._draw()) / SECOND_MS

    def _try_again(self) -> None:
        self._backoff = None
        self._go_on()

    # From in flight to completed.

    def _give_up(self, failed: Failed) -> None:
        """Fails all requests that have no outcome; those of a channel that is closed while it retries are dropped."""
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
        """Calls `then` of the first requests that have their outcomes, then sends what waited for them."""
        while self._in_flight and self._in_flight[0].outcome is not None:
            self._completed.append(self._in_flight.popleft())
        left = COMPLETED_PER_TURN
        while self._completed and left:
            left -= 1
            self._call(self._completed.popleft())
        if self._completed:
            self._complete_soon()
        self._go_on()

    def _call(self, pending: PendingRequest[Any]) -> None:
        try:
            pending.complete()
        except Exception as error:  # Whoever asked has a bug; the next request is not his.
            name = pending.builder.request.__name__
            context = {"message": f"what follows a response to {name} failed", "exception": error}
            self._loop.call_exception_handler(context)

    def _report(self, failed: Failed) -> None:
        """Logs an outage, once until the broker has answered again."""
        if self._is_out:
            return
        self._is_out = True
        count = len(self._waiting) + len(self._in_flight)
        verb = "wait" if self._config.retries else "fail"
        what = f"its request {verb}s" if count == 1 else f"its {count} requests {verb}"
        log.warning("%s can't be reached: %s; %s", self._where, failed.text, what)


def _address(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"
