"""What net/ sees of a simulated process: a shell that settles, and fetchers whose requests go over the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar, cast

from odradek.base.errors import ErrorCode
from odradek.core.moment import Moment
from odradek.core.replica_fetchers import ReplicaFetcher, Request
from odradek.net.channel_requests import RequestBuilder
from odradek.net.from_controller import Shell
from odradek.net.replica_fetchers import FetcherConnections

if TYPE_CHECKING:
    from sim.simreplicated import SimReplicated

T = TypeVar("T")


class SimShell:
    """What net/ sees of a process here: it settles, and knows the time."""

    loop = cast("asyncio.AbstractEventLoop", None)

    def __init__(self, member: SimReplicated) -> None:
        self._member = member

    def now(self) -> Moment:
        return self._member.node.now()

    def settle(self) -> None:
        self._member.server.settle()


class SimFetchers(FetcherConnections):
    """Fetchers whose requests go over the simulated network."""

    def __init__(self, shell: Shell, member: SimReplicated) -> None:
        super().__init__(shell, member.broker, "PLAINTEXT", None)
        self._member = member

    def _ask(
        self, fetcher: ReplicaFetcher, asked: Request, builder: RequestBuilder[T], answered: Callable[[T], None]
    ) -> None:
        def ended(response: T | None) -> None:
            if response is None:
                self._failed(fetcher, asked, ErrorCode.NETWORK_EXCEPTION)
            else:
                answered(response)
            self._member.server.settle()

        self._member.cluster.request(self._member.id, fetcher.leader, builder, ended)

    def _take_in(self, fetcher: ReplicaFetcher, asked: Request, work: Iterator[None]) -> None:
        for _ in work:
            pass
