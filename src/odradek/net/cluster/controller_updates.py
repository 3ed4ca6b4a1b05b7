"""Queue of requests from the controller (this broker or another), applied in order.

ControlRequest ──> a thread reads overrides of new topics and creates files ──> the broker applies it in slices
        └──> for a controller epoch that is new here: the tree must contain it

A failed request is answered, and the next one starts. If the queue stopped instead, the broker would ignore its
controller until its next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.coordination.tree import TreeFailed
from odradek.core.broker.broker import Broker
from odradek.core.broker.log_creation import make_replicas
from odradek.core.broker.metadata_update import Overrides
from odradek.core.broker.replicas import Errors
from odradek.core.controller.broker_request_batch import BecomeLeaderOrFollower, ControlRequest, UpdateMetadata
from odradek.core.kernel.moment import Moment
from odradek.core.partition.storage import NoDirectory
from odradek.net.cluster.tree_metadata import Metadata

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_SECONDS = 1.0  # Delay before reading from the tree is retried.


class Shell(Protocol):
    """The shell as a member uses it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def now(self) -> Moment: ...

    def settle(self) -> None: ...

    def in_order(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        """Run work in the metadata tree's thread, after all work queued there."""

    def add_slices(self, work: Iterator[None]) -> None: ...


class QueuedControlRequest(NamedTuple):
    """Request from the controller, and the callback for its result."""

    sent: ControlRequest
    then: Callable[[Errors | Refused], None]


class ControllerUpdates:
    """Request queue of one broker; on the loop's thread."""

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        metadata: Metadata,
        unless_closed: Callable[..., None],
        on_updated: Callable[[], None],
    ) -> None:
        """Create an empty queue.

        `unless_closed` calls its first argument with the other arguments, unless the broker has stopped. `on_updated`
        is called when the view of the cluster may have changed.
        """
        self._shell = shell
        self._broker = broker
        self._metadata = metadata
        self._unless_closed = unless_closed
        self._on_updated = on_updated
        # A new controller first sends UpdateMetadata with everything, then LeaderAndIsr. Clients that connect between
        # the two are sent here and rejected (NOT_LEADER_OR_FOLLOWER), so a lone broker accepts clients after both.
        self._queue: deque[QueuedControlRequest] = deque()
        self._is_applying = self._has_metadata = False
        self._waiting: tuple[QueuedControlRequest, asyncio.TimerHandle] | None = None  # Waiting for the tree.
        self.informed: asyncio.Future[None] = shell.loop.create_future()

    def add(self, sent: ControlRequest, then: Callable[[Errors | Refused], None]) -> None:
        """Queue a request behind all others; `then` gets the partitions for which it failed."""
        self._queue.append(QueuedControlRequest(sent, then))

    def start_next(self) -> None:
        """Start the next request, if none is under way."""
        if self._is_applying or not self._queue:
            return
        self._is_applying = True
        self._prepare(self._queue.popleft())

    def on_renewed(self) -> None:
        """Retry reading from the tree at once, because there is a session again.

        The waiting request is probably from before the session expired, and will be refused. The requests behind it
        contain the current leaders, including those on this broker.
        """
        if self._waiting is not None:
            queued, timer = self._waiting
            timer.cancel()
            self._prepare(queued)

    def _prepare(self, queued: QueuedControlRequest) -> None:
        """Read required data and create the files of new replicas, in a thread."""
        self._waiting = None
        sent, controlled = queued.sent, self._broker.controlled
        names = controlled.names(sent)
        is_new = sent.controller_epoch > controlled.controller_epoch
        if names or is_new or isinstance(sent.request, BecomeLeaderOrFollower):
            self._shell.in_order(partial(self._read, sent, names, is_new=is_new), partial(self._on_prepared, queued))
        else:  # Not within `start_requested_work`, which every slice calls.
            self._shell.loop.call_soon(self._unless_closed, self._shell.add_slices, self._apply_and_answer(queued, {}))

    def _read(self, sent: ControlRequest, names: Sequence[TopicName], *, is_new: bool) -> Overrides:
        """Return topic overrides; raise Refused for a new controller epoch that is not in the tree."""
        self._broker.controlled.check(sent)  # Stale requests create no files; checked again when applied.
        if is_new:
            self._metadata.check_controller_epoch(sent.controller_epoch)
        overrides = {name: self._metadata.overrides(name) for name in names}
        if isinstance(sent.request, BecomeLeaderOrFollower):
            make_replicas(self._broker, sent.request, overrides, self._shell.now().wall)
        return overrides

    def _on_prepared(self, queued: QueuedControlRequest, done: Future[Overrides]) -> None:
        failure = done.exception()
        if isinstance(failure, TreeFailed):
            log.warning("a request of the controller waits for the metadata tree (will retry): %s", failure)
            later = self._shell.loop.call_later(RETRY_SECONDS, self._unless_closed, self._prepare, queued)
            self._waiting = queued, later
        else:
            self._shell.add_slices(self._apply_and_answer(queued, done.result() if failure is None else failure))

    def _apply_and_answer(self, queued: QueuedControlRequest, read: Overrides | BaseException) -> Iterator[None]:
        try:
            answer = yield from self._apply(queued.sent, read)
        except Exception:  # The process stops after this; where it does not, as in tests, the next request starts.
            self._end(queued, Refused(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        self._end(queued, answer)

    def _apply(self, sent: ControlRequest, read: Overrides | BaseException) -> Generator[None, None, Errors | Refused]:
        """Return the failures by partition, or the reason why the whole request was refused.

        Raises errors that stop the process: a broken invariant, or the failure of the last data directory.
        """
        try:
            if isinstance(read, BaseException):
                raise read
            return (yield from self._broker.apply_controller_request(sent, read, self._shell.now()))
        except Refused as refused:
            return Refused(refused.code, refused.detail)
        except (AssertionError, NoDirectory):
            raise
        except Exception:
            text = "unexpected error in a request of controller %d with epoch %d: %.2000s"
            log.exception(text, sent.controller, sent.controller_epoch, sent.request)
            return Refused(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _end(self, queued: QueuedControlRequest, answer: Errors | Refused) -> None:
        self._is_applying = False
        queued.then(answer)
        if isinstance(queued.sent.request, UpdateMetadata):
            # Not within a slice, because requests waiting on a channel that closes fail at once.
            self._shell.loop.call_soon(self._unless_closed, self._on_updated)
            self._has_metadata = True
        # The consequences of the same event follow in the queue: leaderships of this broker that clients already know.
        if self._has_metadata and not self._queue and not self.informed.done():
            self.informed.set_result(None)
