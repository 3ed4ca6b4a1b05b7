"""Requests of the controller to a simulated broker: one after the other, as in net/cluster/controller_updates.

start, or a change of the tree ──> requests ──> a thread reads and creates files ──> applied, in slices ──> the next
the caller that waits for a change is notified after the last of its requests
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import Change, Changed
from odradek.core.kernel.cluster_view import TopicInfo
from odradek.core.kernel.moment import Moment
from sim.simthreads import CHANGES, SimThreads
from support.own_controller import OneController, PreparedRequest


class SimControllerUpdates:
    """The queue of one process; implements net.effects.Member."""

    def __init__(
        self,
        broker: Broker,
        epoch: int,
        threads: SimThreads,
        now: Callable[[], Moment],
        add_slices: Callable[[Iterator[None]], None],
    ) -> None:
        self._broker = broker
        self._controller = OneController(broker, epoch)
        self._threads = threads
        self._now = now
        self._add_slices = add_slices
        self._changes: deque[Changed] = deque()  # The controller has not checked them yet.
        self._requests: deque[PreparedRequest] = deque()  # The requests for a change, or for the start.
        self._under_way: Changed | None = None
        self._is_sending = False

    def begin(self, topics: Iterable[TopicInfo]) -> None:
        """Send the initial requests to a broker that has started."""
        self._requests.extend(self._controller.initial_requests(map(self._led, topics)))
        self._continue()

    def _led(self, topic: TopicInfo) -> TopicInfo:
        """Return the topic with this broker as its leader, which the tree does not contain."""
        return topic._replace(partitions=tuple(one._replace(leader=self._broker.id) for one in topic.partitions))

    def forwards(self, change: Change) -> bool:
        """Return False, since there is no other broker."""
        return False

    def changed(self, change: Change, changed: Changed) -> None:
        """Announce a change after all earlier ones."""
        self._changes.append(changed)
        self._continue()

    def _continue(self) -> None:
        """Start the next request if none is running, and complete changes without pending requests."""
        if self._is_sending:
            return
        while not self._requests:
            if self._under_way is not None:
                self._broker.on_event(self._under_way, self._now())
                self._under_way = None
            if not self._changes:
                return
            self._under_way = self._changes.popleft()
            topics = self._under_way.topics.items()
            self._requests.extend(
                self._controller.requests_for({name: topic and self._led(topic) for name, topic in topics})
            )
        self._is_sending = True
        request = self._requests.popleft()
        self._threads.submit(
            CHANGES,
            lambda: request.make_files(self._broker, self._now().wall),
            lambda _: self._add_slices(self._apply(request)),
        )

    def _apply(self, request: PreparedRequest) -> Iterator[None]:
        yield from request.apply(self._broker, self._now())
        self._is_sending = False
        self._continue()
