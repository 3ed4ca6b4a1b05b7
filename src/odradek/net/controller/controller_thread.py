"""Event thread of a broker's controller, separate from the loop: handles one event after another.

If the tree is unreachable, the thread waits in the middle of a step, and handles events that arrive during the wait
after the step. When the tree is reachable again, the controller sets all watches and reads everything again
(`Reconnected`), unless the session has expired. Kafka calls this class ControllerEventThread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from odradek.base.units import BrokerId, TimestampMs
from odradek.coordination.tree import SessionState, Tree, Unavailable
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest
from odradek.core.controller.controller import Controller
from odradek.net.controller.controller_tree import ControllerTree

_LOG = logging.getLogger(__name__)

RETRY_SECONDS = 1.0  # Applies if the tree does not report its recovery, for example when its disk is full.


FIRST_REBALANCE_SECONDS = 5.0  # After the election, as in Apache Kafka.


class _Closed(Exception):
    """Raised when the thread must stop while it waits for the tree."""


class ControllerThread:
    """Controller thread of one broker.

    It calls its callbacks in its own thread, `send` and `answered` in the order of the events. `send` receives the
    requests to brokers, and an empty sequence once when this broker stops being the controller.

    `failed` receives unexpected errors, which are bugs of this project. The thread then handles no more events, and the
    broker must stop, since it may be the controller.
    """

    def __init__(
        self,
        controller: Controller,
        tree: Tree,
        broker: BrokerId,
        *,
        now: Callable[[], TimestampMs],
        may_be_unclean: Callable[[Mapping[str, str]], bool],
        send: Callable[[Sequence[ControlRequest]], None],
        answered: Callable[[events.ControllerQuery[Any]], None],
        failed: Callable[[Exception], None],
        is_alone: bool = False,
        rebalance_seconds: int | None = None,
    ) -> None:
        """Create a thread; it does not log its election if the broker `is_alone`, as no other can be elected.

        `rebalance_seconds` is the interval of automatic preferred leader elections; None disables them.
        """
        self._controller = controller
        self._broker = broker
        self._is_alone = is_alone
        self._send = send
        self._answered = answered
        self._failed = failed
        self._rebalance_seconds = rebalance_seconds
        self._rebalance_at: float | None = None  # On the monotonic clock; None while this broker is not the controller.
        self._events: SimpleQueue[events.Event | None] = SimpleQueue()
        self._controller_tree = ControllerTree(tree, broker, now, may_be_unclean, self.put_event)
        self._may_continue = threading.Event()
        self._is_suspended = self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="odradek-controller", daemon=True)
        tree.on_session(self._on_session_state)

    def start(self) -> None:
        self._thread.start()
        self.put_event(events.ControllerChanged())

    def put_event(self, event: events.Event) -> None:
        """Queue an event for handling; may be called in any thread."""
        self._events.put(event)

    def close(self) -> None:
        """Stop the thread after its current event; an event that waits for the tree is abandoned."""
        self._is_closed = True
        self._may_continue.set()
        self._events.put(None)
        self._thread.join()

    def _on_session_state(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self._is_suspended = True
            return
        if state is SessionState.EXPIRED:
            self.put_event(events.SessionEnded())
        elif self._is_suspended:
            self.put_event(events.Reconnected())
        self._is_suspended = False
        self._may_continue.set()

    def _run(self) -> None:
        try:
            while (event := self._next()) is not None and not self._is_closed:
                self._handle(event)
        except _Closed:
            return
        except Exception as error:
            self._failed(error)

    def _next(self) -> events.Event | None:
        """Wait for the next event and return it, or None once the thread must stop."""
        if self._rebalance_at is None:
            return self._events.get()
        left = self._rebalance_at - time.monotonic()
        if left > 0:
            try:
                return self._events.get(timeout=min(left, threading.TIMEOUT_MAX))
            except Empty:
                pass
        return events.RebalanceDue()

    def _rebalance_in(self, seconds: float) -> None:
        """Schedule the next rebalance if rebalancing is enabled and this broker is the controller."""
        is_enabled = self._rebalance_seconds is not None and self._controller.is_active
        self._rebalance_at = time.monotonic() + seconds if is_enabled else None

    def _handle(self, event: events.Event) -> None:
        was_active, epoch = self._controller.is_active, self._controller.epoch
        self._controller_tree.run(self._controller.handle(event), self._await_tree)
        if self._controller.epoch != epoch:
            self._rebalance_in(FIRST_REBALANCE_SECONDS)
        elif isinstance(event, events.RebalanceDue):
            self._rebalance_in(self._rebalance_seconds or 0)
        if self._controller.is_active and self._controller.epoch != epoch:
            text = "broker %d elected as the controller, epoch %d"
            _LOG.log(logging.DEBUG if self._is_alone else logging.INFO, text, self._broker, self._controller.epoch)
        requests = self._controller.take_requests()
        if requests or (was_active and not self._controller.is_active):
            self._send(requests)
        if isinstance(event, events.ControllerQuery):
            self._answered(event)

    def _await_tree(self, failure: Unavailable) -> None:
        _LOG.warning("controller waits for the metadata tree: %s", failure)
        self._may_continue.clear()
        if not self._is_closed:
            self._may_continue.wait(RETRY_SECONDS)
        if self._is_closed:
            raise _Closed
