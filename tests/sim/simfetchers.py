"""Simulated counterparts of a process for net/: a shell that settles, and fetchers over the simulated network.

ISR writes to the tree, before Kafka 2.7, are executed one after the other after a delay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar, cast

from odradek.base.errors import ErrorCode
from odradek.coordination.tree import Operation, Result, Tree
from odradek.core.kernel.moment import Moment
from odradek.core.replication.replica_fetcher_manager import ReplicaFetcher, Request
from odradek.net.channels.channel_requests import RequestBuilder
from odradek.net.cluster.controller_updates import Shell
from odradek.net.cluster.fetcher_connections import FetcherConnections
from sim.simloop import SimLoop
from support.at_once import done

if TYPE_CHECKING:
    from sim.simreplicated import SimReplicated

T = TypeVar("T")


class SimShell:
    """A shell for net/ that settles, knows the time, and has a thread for the tree."""

    def __init__(self, member: SimReplicated) -> None:
        self.loop = cast("asyncio.AbstractEventLoop", SimLoop(member.node))
        self._member = member
        self._works: deque[Callable[[], None]] = deque()

    def now(self) -> Moment:
        return self._member.node.now()

    def settle(self) -> None:
        self._member.server.settle()

    def in_order(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        """Execute work on the tree after earlier work; `then` receives its result."""
        self._works.append(lambda: then(done(work)))
        if len(self._works) == 1:
            self._member.node.after(self._member.cluster.delay_us(), self._next_work)

    def _next_work(self) -> None:
        self._works[0]()
        self._works.popleft()
        if self._works:
            self._member.node.after(self._member.cluster.delay_us(), self._next_work)


def void(_: object) -> None: ...


class _MemberTree:
    def __init__(self, member: SimReplicated) -> None:
        self._member = member

    def __getattr__(self, name: str) -> object:
        return getattr(self._member.tree, name)

    def multi(self, operations: Sequence[Operation]) -> Sequence[Result]:
        results = self._member.tree.multi(operations)
        self._member.wrote_states()
        return results


def member_tree(member: SimReplicated) -> Tree:
    """Return the tree for a member that writes ISRs to it, in the member's current session."""
    return cast("Tree", _MemberTree(member))


class SimFetchers(FetcherConnections):
    """Fetchers that send requests over the simulated network."""

    def __init__(self, shell: Shell, member: SimReplicated) -> None:
        super().__init__(shell, member.broker, "PLAINTEXT", None)
        self._member = member

    def _send(
        self, fetcher: ReplicaFetcher, request: Request, builder: RequestBuilder[T], on_answered: Callable[[T], None]
    ) -> None:
        def ended(response: T | None) -> None:
            if response is None:
                self._failed(fetcher, request, ErrorCode.NETWORK_EXCEPTION)
            else:
                on_answered(response)
            self._member.server.settle()

        self._member.cluster.request(self._member.id, fetcher.leader, builder, ended)

    def _process(self, fetcher: ReplicaFetcher, request: Request, work: Iterator[None]) -> None:
        for _ in work:
            pass
