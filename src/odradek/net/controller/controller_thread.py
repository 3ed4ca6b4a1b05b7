"""Runs a broker's controller beside the loop, in a thread of its own: one event after the other.

A tree that can't be reached is waited for in the middle of a step, and what happens meanwhile is handled after it.
When it is there again, watches are set anew and everything is read (`Reconnected`), unless the session has ended.
Kafka's name for it is ControllerEventThread.
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
from odradek.core.controller.broker_request_batch import ToBroker
from odradek.core.controller.controller import Controller
from odradek.net.controller.controller_tree import ControllerTree

_LOG = logging.getLogger(__name__)

RETRY_SECONDS = 1.0  # Where the tree does not say that it can be reached again, as when its disk is full.


FIRST_REBALANCE_SECONDS = 5.0  # After the election, as in Apache Kafka.


class _Closed(Exception):
    """The thread is to end, and what it waits for does not come."""


class ControllerThread:
    """One broker's.  Its callbacks are called in the thread, `send` and `answered` in the order of the events.

    `send` gets what brokers are to be told; nothing, once, when this one is not the controller any more.

    `failed` gets an error that is nobody's but ours: then nothing more is handled, and the broker has to end, since it
    may be the controller.
    """

    def __init__(
        self,
        controller: Controller,
        tree: Tree,
        broker: BrokerId,
        *,
        now: Callable[[], TimestampMs],
        may_be_unclean: Callable[[Mapping[str, str]], bool],
        send: Callable[[Sequence[ToBroker]], None],
        answered: Callable[[events.Ask[Any]], None],
        failed: Callable[[Exception], None],
        is_alone: bool = False,
        rebalance_seconds: int | None = None,
    ) -> None:
        """A broker that `is_alone` can't but be elected, and does not say so.

        `rebalance_seconds` is how often preferred replicas may come to lead by themselves; None for never.
        """
        self._controller = controller
        self._broker = broker
        self._is_alone = is_alone
        self._send = send
        self._answered = answered
        self._failed = failed
        self._rebalance_seconds = rebalance_seconds
        self._rebalance_at: float | None = None  # On the monotonic clock; None while this one is not the controller.
        self._events: SimpleQueue[events.Event | None] = SimpleQueue()
        self._door = ControllerTree(tree, broker, now, may_be_unclean, self.tell)
        self._may_go_on = threading.Event()
        self._is_suspended = self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="odradek-controller", daemon=True)
        tree.on_session(self._session_is)

    def start(self) -> None:
        self._thread.start()
        self.tell(events.ControllerChanged())

    def tell(self, event: events.Event) -> None:
        """Has an event handled; may be called in any thread."""
        self._events.put(event)

    def close(self) -> None:
        """Ends the thread after the event that it is at; one that waits for the tree is given up."""
        self._is_closed = True
        self._may_go_on.set()
        self._events.put(None)
        self._thread.join()

    def _session_is(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self._is_suspended = True
            return
        if state is SessionState.EXPIRED:
            self.tell(events.SessionEnded())
        elif self._is_suspended:
            self.tell(events.Reconnected())
        self._is_suspended = False
        self._may_go_on.set()

    def _run(self) -> None:
        try:
            while (event := self._next()) is not None and not self._is_closed:
                self._handle(event)
        except _Closed:
            return
        except Exception as error:
            self._failed(error)

    def _next(self) -> events.Event | None:
        """Returns the next event when it comes; None once the thread is to end."""
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
        """Has preferred replicas looked for in so many seconds, if that is wanted and this one is the controller."""
        is_wanted = self._rebalance_seconds is not None and self._controller.is_active
        self._rebalance_at = time.monotonic() + seconds if is_wanted else None

    def _handle(self, event: events.Event) -> None:
        was_active, epoch = self._controller.is_active, self._controller.epoch
        self._door.run(self._controller.handle(event), self._await_tree)
        if self._controller.epoch != epoch:
            self._rebalance_in(FIRST_REBALANCE_SECONDS)
        elif isinstance(event, events.RebalanceDue):
            self._rebalance_in(self._rebalance_seconds or 0)
        if self._controller.is_active and self._controller.epoch != epoch:
            text = "broker %d is the controller, in epoch %d"
            _LOG.log(logging.DEBUG if self._is_alone else logging.INFO, text, self._broker, self._controller.epoch)
        requests = self._controller.take_requests()
        if requests or (was_active and not self._controller.is_active):
            self._send(requests)
        if isinstance(event, events.Ask):
            self._answered(event)

    def _await_tree(self, failure: Unavailable) -> None:
        _LOG.warning("the controller waits for the metadata tree: %s", failure)
        self._may_go_on.clear()
        if not self._is_closed:
            self._may_go_on.wait(RETRY_SECONDS)
        if self._is_closed:
            raise _Closed
