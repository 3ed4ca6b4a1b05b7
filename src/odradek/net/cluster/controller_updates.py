"""The queue of the controller's requests to this broker, of its own controller or of another: applied one by one.

ToBroker ──> a thread reads what is set on topics that are new here, and makes files ──> Broker.told, in slices
        └──> of a controller epoch that is new here: the tree has to know it

A request that fails is answered, and the next one begins: a broker that stopped here would be deaf to its controller
until its next start.
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
from odradek.core.controller.broker_request_batch import BecomeLeaderOrFollower, ToBroker, UpdateMetadata
from odradek.core.kernel.moment import Moment
from odradek.core.partition.storage import NoDirectory
from odradek.net.cluster.tree_metadata import Metadata

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_SECONDS = 1.0  # Before the tree is asked again for what it did not answer.


class Shell(Protocol):
    """The shell as a member sees it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def now(self) -> Moment: ...

    def settle(self) -> None: ...

    def in_order(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        """Does work in the thread of the metadata tree, behind what it has to do already."""

    def add_slices(self, work: Iterator[None]) -> None: ...


class Told(NamedTuple):
    """What the controller says, and who hears the end of it."""

    sent: ToBroker
    ended: Callable[[Errors | Refused], None]


class FromController:
    """The queue of one broker.  On the loop's thread."""

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        metadata: Metadata,
        unless_closed: Callable[..., None],
        updated: Callable[[], None],
    ) -> None:
        """`unless_closed` calls its first argument with the others, unless the broker has stopped meanwhile.

        `updated` is called when the view of the cluster may have changed.
        """
        self._shell = shell
        self._broker = broker
        self._metadata = metadata
        self._unless_closed = unless_closed
        self._updated = updated
        # A new controller sends UpdateMetadata with everything first, and LeaderAndIsr after it.  Clients that connect
        # in between are sent here and rejected (NOT_LEADER_OR_FOLLOWER), so a lone broker accepts clients after both.
        self._told: deque[Told] = deque()
        self._is_telling = self._knows = False
        self._waiting: tuple[Told, asyncio.TimerHandle] | None = None  # For the tree.
        self.informed: asyncio.Future[None] = shell.loop.create_future()

    def add(self, sent: ToBroker, ended: Callable[[Errors | Refused], None]) -> None:
        """Takes a request behind all others; `ended` gets the partitions for which it failed."""
        self._told.append(Told(sent, ended))

    def go_on(self) -> None:
        """Begins the next request, if none is under way."""
        if self._is_telling or not self._told:
            return
        self._is_telling = True
        self._prepare(self._told.popleft())

    def renewed(self) -> None:
        """Asks the tree again at once, as there is a session again.

        What waits is likely to be of before the session ended, and to be refused; behind it comes who leads now, what
        this broker led among it.
        """
        if self._waiting is not None:
            told, timer = self._waiting
            timer.cancel()
            self._prepare(told)

    def _prepare(self, told: Told) -> None:
        """Has a thread read what has to be known, and make the files of new replicas."""
        self._waiting = None
        sent, controlled = told.sent, self._broker.controlled
        names = controlled.names(sent)
        is_new = sent.controller_epoch > controlled.controller_epoch
        if names or is_new or isinstance(sent.request, BecomeLeaderOrFollower):
            self._shell.in_order(partial(self._read, sent, names, is_new=is_new), partial(self._prepared, told))
        else:  # Not within `take`, which every slice calls.
            self._shell.loop.call_soon(self._unless_closed, self._shell.add_slices, self._tell(told, {}))

    def _read(self, sent: ToBroker, names: Sequence[TopicName], *, is_new: bool) -> Overrides:
        """Return what is set on topics.  Raise Refused for a controller epoch that is new here and not in the tree."""
        self._broker.controlled.check(sent)  # What is stale makes no files; it is looked at again when it is applied.
        if is_new:
            self._metadata.check_controller_epoch(sent.controller_epoch)
        overrides = {name: self._metadata.overrides(name) for name in names}
        if isinstance(sent.request, BecomeLeaderOrFollower):
            make_replicas(self._broker, sent.request, overrides, self._shell.now().wall)
        return overrides

    def _prepared(self, told: Told, done: Future[Overrides]) -> None:
        failure = done.exception()
        if isinstance(failure, TreeFailed):
            log.warning("what the controller says waits for the metadata tree: %s", failure)
            later = self._shell.loop.call_later(RETRY_SECONDS, self._unless_closed, self._prepare, told)
            self._waiting = told, later
        else:
            self._shell.add_slices(self._tell(told, done.result() if failure is None else failure))

    def _tell(self, told: Told, read: Overrides | BaseException) -> Iterator[None]:
        try:
            answer = yield from self._applied(told.sent, read)
        except Exception:  # The process ends for it; where it does not, as in tests, the next request begins.
            self._end(told, Refused(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        self._end(told, answer)

    def _applied(self, sent: ToBroker, read: Overrides | BaseException) -> Generator[None, None, Errors | Refused]:
        """Return the failures by partition, or why the whole request was refused.

        Raise what the process ends for: a broken invariant, or the failure of the last data directory.
        """
        try:
            if isinstance(read, BaseException):
                raise read
            return (yield from self._broker.told(sent, read, self._shell.now()))
        except Refused as refused:
            return Refused(refused.code, refused.detail)
        except (AssertionError, NoDirectory):
            raise
        except Exception:
            text = "a request of controller %d in epoch %d failed, and the next one begins: %.2000s"
            log.exception(text, sent.controller, sent.controller_epoch, sent.request)
            return Refused(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _end(self, told: Told, answer: Errors | Refused) -> None:
        self._is_telling = False
        told.ended(answer)
        if isinstance(told.sent.request, UpdateMetadata):
            # Not within a slice: who waits on a channel that is closed is told at once.
            self._shell.loop.call_soon(self._unless_closed, self._updated)
            self._knows = True
        # What the same event leads to is behind it in the queue: what this broker leads, of which clients know by now.
        if self._knows and not self._told and not self.informed.done():
            self.informed.set_result(None)
