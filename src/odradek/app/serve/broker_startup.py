"""Construction of a broker from its settings: the only module that knows every part.

The order is: bind the addresses, lock and open the log directories, join the metadata tree, and accept clients last. A
port in use is thus reported before anything is touched.
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
from odradek.app.serve.listener_setup import listeners_of
from odradek.base.units import SECOND_MS
from odradek.coordination.reconnecting_tree import ReconnectingTree
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
INFORMED_SECONDS_MAX = 10  # A cluster broker is ready even without a controller.


class RunningBroker:
    """Running broker, confined to the loop that started it."""

    def __init__(
        self,
        shell: Shell,
        listeners: Sequence[Listener],
        tree: ReconnectingTree,
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
        """Hand over leadership, stop accepting, complete pending requests and leave the cluster."""
        await self.shell.controlled_shutdown()
        self._stop_timers()
        for listener in self.listeners:
            listener.stop_accepting()
            listener.stop_reading()
        await self.shell.finish_writing()
        self.shell.leave()
        self.shell.stop_answering()
        for listener in self.listeners:
            listener.close_connections()
        await asyncio.sleep(0)  # Let the transports write their data.
        self.shell.stop()
        self._tree.close()
        for listener in self.listeners:
            listener.abort_connections()

    async def abandon(self) -> None:
        """Stop like a killed process: send and sync nothing, so that the next start finds a crash."""
        self._stop_timers()
        for listener in self.listeners:
            listener.stop_accepting()
            listener.abort_connections()
        await asyncio.sleep(0)  # Let the transports close their sockets.
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
        # Much later than planned: the process was stopped, so first read what clients sent in that time.
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
    open_tree: Callable[..., SqliteTree] = SqliteTree,
) -> RunningBroker:
    """Start a broker with these settings. If not durable, never wait for the disk (log/files/unsynced.py).

    `open_tree` opens a session of the tree that the brokers of one machine share, as SqliteTree does.

    Raise ConfigError for unreadable certificates, CannotListen, DirectoryInUse, WrongDirectory, DiskFailed, TreeFailed
    and BadZnodeError. Each message is written for users.
    """
    contexts, unready = _certificates(settings)
    shell = Shell(loop, settings.configs.int("num.network.threads"))
    listeners = listeners_of(settings, shell, contexts)
    metrics = None
    try:
        for listener, listener_settings in zip(listeners, settings.listeners, strict=True):
            await listener.bind(listener_settings.host, listener_settings.port)
        metrics = _metrics(settings, shell, listeners)
        tree = await open_broker(settings, shell, listeners, unready, durable=durable, open_tree=open_tree)
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
    running = RunningBroker(shell, listeners, tree, metrics=metrics, idle_ms_max=idle_ms_max)
    try:
        if not settings.is_member:  # It is its own controller and needs no listener.
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
    from odradek.app.metrics.metrics import Metrics  # Import only if needed, to save time and memory.

    metrics = Metrics(settings.metrics, shell, listeners)
    metrics.start()
    return metrics


def _log_requests(shell: Shell) -> None:
    if logging.getLogger(logs.REQUESTS).isEnabledFor(logging.DEBUG):
        from odradek.app.logging import request_log  # Import only if needed, to save time and memory.

        request_log.install(shell)


def _certificates(settings: Settings) -> tuple[Mapping[str, Contexts], Mapping[str, ConfigError]]:
    """Read the stores of each listener. Also return the errors, since the metadata may name newer stores.

    Raise ConfigError if there is no metadata yet.
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
