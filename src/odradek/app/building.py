"""Puts a broker together from its settings: the one place that knows every part.

Order: addresses are bound (so that a port in use is said before anything is touched), data directories are locked and
opened, the metadata tree is joined, and clients are let in last.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence

from odradek.app.config import Settings
from odradek.base.units import INT32_MAX, SECOND_MS, BrokerId, TimestampMs, TopicName
from odradek.base.uuids import UUID_BYTES, Uuid, is_usable, to_text
from odradek.coordination.sqlite import SqliteTree
from odradek.core.broker import Broker, Entropy
from odradek.core.cluster import BrokerInfo, Endpoint
from odradek.core.storage import Storage, log_config
from odradek.log.config import LogConfig
from odradek.log.directory import LogDirectory
from odradek.log.disk import RealDisk
from odradek.log.meta_properties import WrongDirectory, identity
from odradek.net.listener import SYSTEM_DEFAULT, Listener
from odradek.net.metadata import Membership, Metadata
from odradek.net.shell import Shell

log = logging.getLogger(__name__)

METADATA_FILE = "metadata.sqlite"
IDLE_CHECK_SECONDS = 10


class Running:
    """A broker that serves.  Everything is on the loop that started it."""

    def __init__(self, shell: Shell, listeners: Sequence[Listener], metadata: Metadata, idle_ms_max: int) -> None:
        self.shell = shell
        self.listeners = listeners
        self._metadata = metadata
        self._idle_ms_max = idle_ms_max
        self._idle_check: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        for listener in self.listeners:
            await listener.start()
        self._close_idle()

    async def stop(self) -> None:
        """Let nobody in any more, answer who waits, sync and close the logs, leave the cluster."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        for listener in self.listeners:
            listener.stop_accepting()
        self.shell.stop_answering()
        for listener in self.listeners:
            listener.close_connections()
        await asyncio.sleep(0)  # The transports write what they were given.
        self.shell.stop()
        self._metadata.leave()
        for listener in self.listeners:
            listener.abort_connections()

    def _close_idle(self) -> None:
        if self._idle_ms_max <= 0:
            return
        before = self.shell.now().steady - self._idle_ms_max
        for listener in self.listeners:
            listener.close_idle(before)
        pause = min(IDLE_CHECK_SECONDS, self._idle_ms_max / SECOND_MS / 2)
        self._idle_check = self.shell.loop.call_later(pause, self._close_idle)


async def start(settings: Settings, loop: asyncio.AbstractEventLoop) -> Running:
    """A broker that serves these settings.

    Raises CannotListen, DirectoryInUse, WrongDirectory, DiskFailed, Unavailable: each text is for a person.
    """
    shell = Shell(loop)
    listeners = [_listener(settings, shell, position) for position in range(len(settings.listeners))]
    try:
        for listener, wanted in zip(listeners, settings.listeners, strict=True):
            await listener.bind(wanted.host, wanted.port)
        metadata = _open_broker(settings, shell, listeners)
    except BaseException:
        for listener in listeners:
            listener.stop_accepting()
        raise
    running = Running(shell, listeners, metadata, settings.connections_idle_ms_max)
    await running.serve()
    return running


def _listener(settings: Settings, shell: Shell, position: int) -> Listener:
    wanted = settings.listeners[position]
    advertised = settings.advertised.get(wanted.name)
    return Listener(
        shell,
        wanted.name,
        None if advertised is None else Endpoint(wanted.name, advertised.host, advertised.port),
        request_bytes_max=settings.request_bytes_max,
        connections_max=settings.connections_max,
        connections_per_address_max=settings.connections_per_ip_max,
        backlog=settings.listen_backlog,
        # Kafka's default would keep the system from sizing them by itself, which it does better.
        receive_buffer_bytes=_if_set(settings, "socket.receive.buffer.bytes"),
        send_buffer_bytes=_if_set(settings, "socket.send.buffer.bytes"),
    )


def _if_set(settings: Settings, name: str) -> int:
    return settings.configs.int(name) if settings.configs.is_set(name) else SYSTEM_DEFAULT


def _open_broker(settings: Settings, shell: Shell, listeners: Sequence[Listener]) -> Metadata:
    disk, now = RealDisk(), shell.now()
    disk.make_directory(str(settings.metadata_dir))
    tree = SqliteTree(settings.metadata_dir / METADATA_FILE)
    try:
        known_id, known_cluster = _identity(disk, str(settings.log_dirs[0]))
        wanted_id = settings.broker_id if settings.broker_id is not None else known_id
        metadata = Metadata(tree)
        membership = metadata.prepare(wanted_id, settings.reserved_broker_id_max, known_cluster or to_text(_new_uuid()))
        storage = _open_storage(settings, metadata, membership, disk, now.wall)
        metadata.adopt(storage.topics(), membership.broker_id, _new_uuid)
        metadata.register(BrokerInfo(membership.broker_id, _endpoints(listeners), settings.rack), now.wall)
    except BaseException:
        tree.close()
        raise
    broker = Broker(membership.broker_id, metadata.view(), storage, settings.configs, Entropy(_random_int31, _new_uuid))
    broker.start(now)
    _report(storage)
    shell.run(broker, metadata.change)
    return metadata


def _identity(disk: RealDisk, directory: str) -> tuple[BrokerId | None, str | None]:
    broker_id, cluster_id = identity(disk, directory)
    if broker_id is not None and broker_id > INT32_MAX:
        raise WrongDirectory(f"meta.properties of {directory} has broker id {broker_id}, which no broker can have")
    return broker_id, cluster_id


def _open_storage(
    settings: Settings, metadata: Metadata, membership: Membership, disk: RealDisk, now: TimestampMs
) -> Storage:
    topics = metadata.topics()

    def config_of(name: TopicName) -> LogConfig:
        topic = topics.get(name)
        return log_config(settings.configs.for_topic({} if topic is None else topic.configs))

    return Storage(
        [
            LogDirectory.open(
                disk,
                str(path),
                now,
                broker_id=membership.broker_id,
                cluster_id=membership.cluster_id,
                config_of=config_of,
            )
            for path in settings.log_dirs
        ]
    )


def _report(storage: Storage) -> None:
    """What the start found and mended, and which partitions it could not open."""
    for directory in storage:
        for problem in directory.problems:
            log.warning("%s: %s", directory.path, problem)
        for name, reason in directory.offline.items():
            log.error("%s is offline: %s", name, reason)


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
