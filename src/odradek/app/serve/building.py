"""Puts a broker together from its settings: the one place that knows every part.

Order: addresses are bound (so that a port in use is said before anything is touched), data directories are locked and
opened, the metadata tree is joined, and clients are let in last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.app.config.listener_tls import contexts_of
from odradek.app.config.server_config import Settings
from odradek.app.logging import log_format as logs
from odradek.app.serve.cluster_joining import open_broker
from odradek.app.serve.data_dirs import report_missed
from odradek.app.serve.listening import listeners_of
from odradek.base.units import SECOND_MS
from odradek.coordination.reconnecting_tree import RenewedTree
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.core.configs.definition import ConfigError
from odradek.net.clients.budget_watch import BudgetWatch
from odradek.net.clients.listener import Listener
from odradek.net.shell.shell import Shell

if TYPE_CHECKING:
    from odradek.app.metrics.metrics import Metrics
    from odradek.tls.ssl_contexts import Contexts

log = logging.getLogger(__name__)

IDLE_CHECK_SECONDS = 10
INFORMED_SECONDS_MAX = 10  # A broker of a cluster is ready without its controller, too, and learns of it later.


class Running:
    """A broker that serves.  Everything is on the loop that started it."""

    def __init__(
        self,
        shell: Shell,
        listeners: Sequence[Listener],
        tree: RenewedTree,
        *,
        metrics: Metrics | None,
        idle_ms_max: int,
    ) -> None:
        self.shell = shell
        self.listeners = listeners
        self.metrics = metrics
        self._tree = tree
        self._idle_ms_max = idle_ms_max
        self._idle_check: asyncio.TimerHandle | None = None
        self._idle_check_due = 0
        budgets = {id(listener.budget): listener.budget for listener in listeners}
        self._budget_watches = [BudgetWatch(shell.loop, budget) for budget in budgets.values()]

    async def serve(self) -> None:
        for listener in self.listeners:
            await listener.start()
        self._close_idle()
        for watch in self._budget_watches:
            watch.start()

    async def stop(self) -> None:
        """Has others lead, lets nobody in any more, finishes what was begun, answers who waits, leaves the cluster."""
        await self.shell.hand_over()
        self._stop_timers()
        for listener in self.listeners:
            listener.stop_accepting()
            listener.stop_reading()
        await self.shell.finish_writing()
        self.shell.leave()
        self.shell.stop_answering()
        for listener in self.listeners:
            listener.close_connections()
        await asyncio.sleep(0)  # The transports write what they were given.
        self.shell.stop()
        self._tree.close()
        for listener in self.listeners:
            listener.abort_connections()

    async def abandon(self) -> None:
        """Ends as a killed process does: nobody is answered, nothing is synced, and the next start finds a crash."""
        self._stop_timers()
        for listener in self.listeners:
            listener.stop_accepting()
            listener.abort_connections()
        await asyncio.sleep(0)  # The transports close their sockets.
        self.shell.leave()
        self.shell.abandon()
        self._tree.abandon()

    def _stop_timers(self) -> None:
        if self.metrics is not None:
            self.metrics.stop()
        for watch in self._budget_watches:
            watch.stop()
        if self._idle_check is not None:
            self._idle_check.cancel()

    def _close_idle(self) -> None:
        if self._idle_ms_max <= 0:
            return
        pause = min(IDLE_CHECK_SECONDS, self._idle_ms_max / SECOND_MS / 2)
        now = self.shell.now().steady
        # Much later than planned: the process was stopped, and what clients sent meanwhile is read first.
        is_late = now > self._idle_check_due + pause * SECOND_MS
        if not is_late:
            for listener in self.listeners:
                listener.close_idle(now - self._idle_ms_max)
        self._idle_check_due = now + int(pause * SECOND_MS)
        self._idle_check = self.shell.loop.call_later(pause, self._close_idle)


async def start(
    settings: Settings,
    loop: asyncio.AbstractEventLoop,
    *,
    durable: bool = True,
    opens_tree: Callable[..., SqliteTree] = SqliteTree,
) -> Running:
    """Starts a broker that serves these settings.  Not durable: it never waits for the disk, see log/files/unsynced.

    `opens_tree` begins a session of the tree that the brokers of one machine share, as SqliteTree does.

    Raises ConfigError for certificates that can't be read, CannotListen, DirectoryInUse, WrongDirectory, DiskFailed,
    TreeFailed, BadZnodeError: each text is for a person.
    """
    contexts, unready = _certificates(settings)
    shell = Shell(loop, settings.configs.int("num.network.threads"))
    listeners = listeners_of(settings, shell, contexts)
    metrics = None
    try:
        for listener, wanted in zip(listeners, settings.listeners, strict=True):
            await listener.bind(wanted.host, wanted.port)
        metrics = _metrics(settings, shell, listeners)
        tree = await open_broker(settings, shell, listeners, unready, durable=durable, opens_tree=opens_tree)
    except BaseException:
        if metrics is not None:
            metrics.stop()
        for listener in listeners:
            listener.stop_accepting()
        raise
    if metrics is not None:
        metrics.announce()
    _log_requests(shell)
    idle_ms_max = settings.connections_idle_ms_max
    running = Running(shell, listeners, tree, metrics=metrics, idle_ms_max=idle_ms_max)
    try:
        if not settings.is_member:  # Its controller is itself, and needs no listener for it.
            await shell.member.informed
        await running.serve()
        if settings.is_member:
            await asyncio.wait([shell.member.informed], timeout=INFORMED_SECONDS_MAX)
    except asyncio.CancelledError:
        await running.stop()
        raise
    report_missed(shell.broker.storage)
    return running


def _metrics(settings: Settings, shell: Shell, listeners: Sequence[Listener]) -> Metrics | None:
    if settings.metrics is None:
        return None
    from odradek.app.metrics.metrics import Metrics  # A broker without metrics saves its time and memory.

    metrics = Metrics(settings.metrics, shell, listeners)
    metrics.start()
    return metrics


def _log_requests(shell: Shell) -> None:
    if logging.getLogger(logs.REQUESTS).isEnabledFor(logging.DEBUG):
        from odradek.app.logging import request_log  # A broker without a request log saves its time and memory.

        request_log.install(shell)


def _certificates(settings: Settings) -> tuple[Mapping[str, Contexts], Mapping[str, ConfigError]]:
    """Reads the stores of each listener; returns also why not, since the metadata may name newer ones.

    Raises ConfigError where there is no metadata yet.
    """
    contexts: dict[str, Contexts] = {}
    unready: dict[str, ConfigError] = {}
    for name, config in settings.tls.items():
        try:
            contexts.update(contexts_of({name: config}))
        except ConfigError as error:
            if not (settings.metadata_dir / METADATA_FILE).exists():
                raise
            unready[name] = error
    return contexts, unready
