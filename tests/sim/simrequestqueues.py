"""The requests of a controller to one broker: sent in order, each retried until there is a response."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest
from sim.simclock import MILLISECOND_US
from sim.simcontroller import SimMember
from sim.simrequests import Lines

if TYPE_CHECKING:
    from sim.simreplicated import SimReplicated

RETRY_US = 100 * MILLISECOND_US  # Pause before a request without a response is resent.


class RequestQueue:
    """The queue of requests of a controller to one broker; those of an earlier process are dropped."""

    def __init__(self, lines: Lines, sender: SimMember, receiver: SimReplicated) -> None:
        self._lines = lines
        self._clock = sender.node.clock
        self._sender = sender
        self._receiver = receiver
        self._waiting: deque[tuple[int, ControlRequest]] = deque()  # With the life of its sender.

    def send(self, request: ControlRequest) -> None:
        waiting, life = self._waiting, self._sender.node.life
        if waiting and waiting[0][0] != life:
            waiting.clear()
        waiting.append((life, request))
        if len(waiting) == 1:
            self._clock.after(self._lines.delay_us(), lambda: self._deliver(life, request))

    def _is_next(self, request: ControlRequest) -> bool:
        return bool(self._waiting) and self._waiting[0][1] is request

    def _deliver(self, life: int, request: ControlRequest) -> None:
        if not self._is_next(request):
            return
        if not self._lines.loses(self._sender.id, self._receiver.id):
            self._receiver.node.soon(lambda: self._arrived(life, request))
        if self._sender.node.life == life:
            self._clock.after(RETRY_US, lambda: self._deliver(life, request))
        else:
            self._waiting.clear()

    def _arrived(self, life: int, request: ControlRequest) -> None:
        receiver = self._receiver
        errors = receiver.take(request) if receiver.is_alive else None
        if not self._lines.loses(receiver.id, self._sender.id):
            self._clock.after(self._lines.delay_us(), lambda: self._answered(life, request, errors))

    def _answered(self, life: int, request: ControlRequest, errors: dict[TopicPartition, ErrorCode] | None) -> None:
        if not self._is_next(request):
            return
        self._waiting.popleft()
        sender = self._sender
        if errors is not None and sender.is_alive and sender.node.life == life:
            sender.put_event(events.Answered(request, errors))
        if self._waiting:
            following = self._waiting[0]
            self._clock.after(self._lines.delay_us(), lambda: self._deliver(*following))
