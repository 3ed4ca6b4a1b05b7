"""Puts a broker together from its settings: the one place that knows every part.

Order: addresses are bound (so that a port in use is said before anything is touched), data directories are locked and
opened, the metadata tree is joined, and clients are let in last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.app import logs
from odradek.app.adoption import Adoption
from odradek.app.config import Settings
from odradek.app.data_dirs import open_storage, report
from odradek.app.listener_tls import contexts_of
from odradek.app.listeners import Listener as ListenerSettings
from odradek.app.reconfiguration import Reconfiguration, password_encoder
from odradek.base.limits import RECEIVE_BUDGET_BYTES
from odradek.base.units import INT32_MAX, SECOND_MS, BrokerId, TimestampMs, TopicName
from odradek.base.uuids import UUID_BYTES, Uuid, is_usable, to_text
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.core.broker import Broker
from odradek.core.cluster import BrokerInfo, Endpoint
from odradek.core.configs.definition import ConfigError
from odradek.core.entropy import Entropy
from odradek.core.storage import NoDirectory, Storage, log_config
from odradek.log.config import LogConfig
from odradek.log.disk import DiskFailed, RealDisk
from odradek.log.loading import make_durable_directory, open_log_directory
from odradek.log.meta_properties import WrongDirectory, identity
from odradek.log.names import LOCK, parse_partition
from odradek.log.unsynced import UnsyncedDisk
from odradek.net.budget_watch import BudgetWatch
from odradek.net.config_changes import ConfigChanges
from odradek.net.listener import SYSTEM_DEFAULT, Listener
from odradek.net.metadata import AnotherBroker, Membership, Metadata
from odradek.net.shell import Shell
from odradek.wire.budget import ReceiveBudget

if TYPE_CHECKING:
    from odradek.app.metrics import Metrics
    from odradek.tls.contexts import Contexts

log = logging.getLogger(__name__)

IDLE_CHECK_SECONDS = 10


class Running:
    """A broker that serves.  Everything is on the loop that started it."""

    def __init__(
        self,
        shell: Shell,
        listeners: Sequence[Listener],
        tree: SqliteTree,
        *,
        metrics: Metrics | None,
        budget: ReceiveBudget,
        idle_ms_max: int,
    ) -> None:
        self.shell = shell
        self.listeners = listeners
        self.metrics = metrics
        self._tree = tree
        self._idle_ms_max = idle_ms_max
        self._idle_check: asyncio.TimerHandle | None = None
        self._idle_check_due = 0
        self._budget_watch = BudgetWatch(shell.loop, budget)

    async def serve(self) -> None:
        for listener in self.listeners:
            await listener.start()
        self._close_idle()
        self._budget_watch.start()

    async def stop(self) -> None:
        """Lets nobody in any more, finishes what was begun, answers who waits, closes the logs, leaves the cluster."""
        self._stop_timers()
        for listener in self.listeners:
            listener.stop_accepting()
            listener.stop_reading()
        await self.shell.finish_writing()
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
        self.shell.abandon()
        self._tree.abandon()

    def _stop_timers(self) -> None:
        if self.metrics is not None:
            self.metrics.stop()
        self._budget_watch.stop()
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


async def start(settings: Settings, loop: asyncio.AbstractEventLoop, *, durable: bool = True) -> Running:
    """Starts a broker that serves these settings.  Not durable: it never waits for the disk, see log/unsynced.

    Raises ConfigError for certificates that can't be read, CannotListen, DirectoryInUse, WrongDirectory, DiskFailed,
    TreeFailed, BadZnodeError: each text is for a person.
    """
    contexts, unready = _certificates(settings)
    shell = Shell(loop, settings.configs.int("num.network.threads"))
    budget = ReceiveBudget(_budget_bytes(settings))
    listeners = [_listener(settings, shell, budget, wanted, contexts.get(wanted.name)) for wanted in settings.listeners]
    metrics = None
    try:
        for listener, wanted in zip(listeners, settings.listeners, strict=True):
            await listener.bind(wanted.host, wanted.port)
        metrics = _metrics(settings, shell, listeners)
        tree = _open_broker(settings, shell, listeners, unready, durable)
    except BaseException:
        if metrics is not None:
            metrics.stop()
        for listener in listeners:
            listener.stop_accepting()
        raise
    if metrics is not None:
        metrics.begin(shell.broker)
    _log_requests(shell)
    idle_ms_max = settings.connections_idle_ms_max
    running = Running(shell, listeners, tree, metrics=metrics, budget=budget, idle_ms_max=idle_ms_max)
    await running.serve()
    return running


def _metrics(settings: Settings, shell: Shell, listeners: Sequence[Listener]) -> Metrics | None:
    if settings.metrics is None:
        return None
    from odradek.app.metrics import Metrics  # A broker without metrics saves its time and memory.

    metrics = Metrics(settings.metrics, shell, listeners)
    metrics.start()
    return metrics


def _log_requests(shell: Shell) -> None:
    if logging.getLogger(logs.REQUESTS).isEnabledFor(logging.DEBUG):
        from odradek.app import request_log  # A broker without a request log saves its time and memory.

        request_log.install(shell)


def _listener(
    settings: Settings, shell: Shell, budget: ReceiveBudget, wanted: ListenerSettings, contexts: Contexts | None
) -> Listener:
    advertised = settings.advertised.get(wanted.name)
    return Listener(
        shell,
        wanted.name,
        None if advertised is None else Endpoint(wanted.name, advertised.host, advertised.port),
        request_bytes_max=settings.request_bytes_max,
        connections_max=settings.connections_max,
        connections_per_address_max=settings.connections_per_ip_max,
        backlog=settings.listen_backlog,
        budget=budget,
        # Kafka's default would keep the system from sizing it by itself, which it does better.
        receive_buffer_bytes=_if_set(settings, "socket.receive.buffer.bytes"),
        # Left to the system, megabytes queue up, and six consumers get half as much.
        send_buffer_bytes=settings.socket_send_buffer_bytes,
        contexts=contexts,
    )


def _budget_bytes(settings: Settings) -> int:
    """Returns the bound of receive buffers; Kafka's default is none, which takes as much memory as clients like."""
    wanted = settings.queued_request_bytes_max
    return wanted if wanted > 0 else RECEIVE_BUDGET_BYTES


def _if_set(settings: Settings, name: str) -> int:
    return settings.configs.int(name) if settings.configs.is_set(name) else SYSTEM_DEFAULT


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


def _begin_configs(
    settings: Settings, changes: ConfigChanges, listeners: Sequence[Listener], unready: Mapping[str, ConfigError]
) -> None:
    """Puts in force what was configured while the broker ran.  Raises ConfigError: a listener has no certificate."""
    configs, put_in_force = changes.begin()
    settings.configs.become(configs)
    put_in_force()
    for listener in listeners:
        if listener.name in unready and listener.entrance is None:
            raise unready[listener.name]


def _open_broker(
    settings: Settings,
    shell: Shell,
    listeners: Sequence[Listener],
    unready: Mapping[str, ConfigError],
    durable: bool,
) -> SqliteTree:
    disk, now = (RealDisk if durable else UnsyncedDisk)(shell.room.opened), shell.now()
    make_durable_directory(disk, str(settings.metadata_dir))
    tree = SqliteTree(settings.metadata_dir / METADATA_FILE, durable=durable)
    try:
        known_id, known_cluster = _identity(disk, settings.log_dirs)
        wanted_id = settings.broker_id if settings.broker_id is not None else known_id
        metadata = Metadata(tree, str(settings.metadata_dir))
        if known_id is None:
            _check_whose(disk, settings.log_dirs, metadata, wanted_id)
        membership = metadata.prepare(wanted_id, settings.reserved_broker_id_max, known_cluster or to_text(_new_uuid()))
        reconfiguration = Reconfiguration(settings, listeners, shell.movers)
        encoder = password_encoder(settings.configs)
        changes = ConfigChanges(tree, membership.broker_id, settings.configs, encoder, reconfiguration.prepare)
        _begin_configs(settings, changes, listeners, unready)
        # Read before the logs are opened, since recovery goes by their configuration.
        adoption = (
            None
            if metadata.had_topics
            else Adoption.read(disk, _data_dirs(settings), settings.configs, membership.broker_id)
        )
        storage = _open_storage(settings, _topic_configs(metadata, adoption), membership, disk, now.wall)
        if adoption is not None:
            _adopt(storage, metadata, membership, adoption)
        metadata.register(BrokerInfo(membership.broker_id, _endpoints(listeners), settings.rack), now.wall)
    except BaseException as error:
        tree.close()
        if isinstance(error, AnotherBroker):
            _check_unlocked(disk, settings.log_dirs)
        raise
    broker = Broker(membership.broker_id, metadata.view(), storage, settings.configs, Entropy(_random_int31, _new_uuid))
    broker.open_logs(now)
    broker.start(shell.now())
    report(storage)
    take_ids = partial(metadata.take_producer_ids, membership.broker_id)
    shell.run(broker, metadata.change, take_ids, changes.change)
    return tree


def _check_unlocked(disk: RealDisk, directories: Sequence[Path]) -> None:
    """Raises DirectoryInUse if a broker has one of them: that then says better what is wrong."""
    for directory in directories:
        lock = directory / LOCK
        if lock.exists():
            disk.lock(str(lock)).release()


def _identity(disk: RealDisk, directories: Sequence[Path]) -> tuple[BrokerId | None, str | None]:
    """Returns the ids of the first meta.properties that has a broker id; claims compare the others with them."""
    known: tuple[BrokerId | None, str | None] = None, None
    for directory in directories:
        try:
            broker_id, cluster_id = identity(disk, str(directory))
        except DiskFailed:
            continue  # Who opens it tells of it.
        if broker_id is not None and broker_id > INT32_MAX:
            raise WrongDirectory(f"meta.properties of {directory} has broker id {broker_id}, which no broker can have")
        if broker_id is not None:
            return broker_id, cluster_id
        known = None, known[1] or cluster_id
    return known


def _check_whose(disk: RealDisk, directories: Sequence[Path], metadata: Metadata, wanted_id: BrokerId | None) -> None:
    """Raises WrongDirectory for logs that may be another broker's: under a new id they would serve nobody."""
    has_logs = [path for path in directories if _has_partitions(disk, str(path))]
    topics = metadata.topics().values() if has_logs else ()
    replicas = {broker_id for topic in topics for partition in topic.partitions for broker_id in partition.replicas}
    if replicas and wanted_id not in replicas:
        ids = ", ".join(map(str, sorted(replicas)))
        raise WrongDirectory(
            f"{has_logs[0]} holds logs and no meta.properties says whose: set broker.id to the broker's "
            f"(the metadata knows {ids}), or name another data directory"
        )


def _has_partitions(disk: RealDisk, directory: str) -> bool:
    try:
        return any(parse_partition(entry.name) for entry in disk.entries(directory) if entry.size < 0)
    except DiskFailed:
        return False  # Or it can't be read, which is told by who opens it.


def _topic_configs(metadata: Metadata, adoption: Adoption | None) -> Callable[[TopicName], Mapping[str, str]]:
    """Returns what gives a topic's configuration, also of one that will be taken over."""
    if adoption is not None:
        return adoption.configs
    topics = metadata.topics()
    return lambda name: topics[name].configs if name in topics else {}


def _open_storage(
    settings: Settings,
    topic_configs: Callable[[TopicName], Mapping[str, str]],
    membership: Membership,
    disk: RealDisk,
    now: TimestampMs,
) -> Storage:
    @cache
    def config_of(name: TopicName) -> LogConfig:
        return log_config(settings.configs.for_topic(topic_configs(name)))

    return open_storage(
        disk,
        settings.log_dirs,
        lambda path, each: open_log_directory(
            disk,
            path,
            now,
            broker_id=membership.broker_id,
            cluster_id=membership.cluster_id,
            config_of=config_of,
            turns=threading.Lock(),
            each=each,
        ),
    )


def _data_dirs(settings: Settings) -> list[Path]:
    """Returns where logs lie, and where metadata does: a metadata log of Apache Kafka may be in either."""
    return list(dict.fromkeys((*settings.log_dirs, settings.metadata_dir)))


def _adopt(storage: Storage, metadata: Metadata, membership: Membership, adoption: Adoption) -> None:
    """Takes over topics whose logs another broker wrote."""
    found = storage.topics()
    failed = next((one for one in storage if one.failure is not None), None)
    if found and failed is not None:
        text = "the topics in the data directories can't be taken over without one of them"
        raise NoDirectory(f"{failed.path} can't be used, and {text}: {failed.failure}.")
    topics = adoption.topics(found, membership.broker_id, _new_uuid)
    if topics:
        metadata.adopt(topics)
    storage.adopted([topic.name for topic in topics])
    adoption.tell(topics, found)


def _endpoints(listeners: Sequence[Listener]) -> tuple[Endpoint, ...]:
    return tuple(
        listener.advertised or Endpoint(listener.name, listener.host or "localhost", listener.port)
        for listener in listeners
    )


def _random_int31() -> int:
    return int.from_bytes(os.urandom(4), "big") & INT32_MAX


def _new_uuid() -> Uuid:
    while not is_usable(uuid := Uuid(os.urandom(UUID_BYTES))):
        pass
    return uuid
