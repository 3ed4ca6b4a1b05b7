"""What a broker needs before it can be put together: whose the directories are, their logs, its addresses."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from odradek.app.config import Settings
from odradek.app.data_dirs import open_storage
from odradek.app.listeners import Listener as ListenerSettings
from odradek.app.reconfiguration import Reconfiguration, password_encoder
from odradek.base.units import INT32_MAX, BrokerId, TimestampMs, TopicName
from odradek.base.uuids import UUID_BYTES, Uuid, is_usable, to_text
from odradek.coordination.tree import Tree
from odradek.core.cluster import Endpoint, TopicInfo
from odradek.core.configs.definition import ConfigError
from odradek.core.storage import Storage, log_config
from odradek.log.config import LogConfig
from odradek.log.disk import DiskFailed, RealDisk
from odradek.log.loading import open_log_directory
from odradek.log.meta_properties import WrongDirectory, identity
from odradek.log.names import LOCK, META_PROPERTIES, parse_partition
from odradek.net.config_changes import ConfigChanges
from odradek.net.listener import Listener
from odradek.net.metadata import Membership, Metadata
from odradek.net.shell import Shell


def begin_configs(
    settings: Settings, changes: ConfigChanges, listeners: Sequence[Listener], unready: Mapping[str, ConfigError]
) -> None:
    """Puts in force what was configured while the broker ran.  Raises ConfigError: a listener has no certificate."""
    configs, put_in_force = changes.begin()
    settings.configs.become(configs)
    put_in_force()
    for listener in listeners:
        if listener.name in unready and listener.entrance is None:
            raise unready[listener.name]


def claimed(settings: Settings, disk: RealDisk, metadata: Metadata) -> Membership:
    """Returns who this broker is, by its directories and the tree.  Raises WrongDirectory, AnotherBroker."""
    known_id, known_cluster = _known_identity(disk, settings.log_dirs)
    wanted_id = settings.broker_id if settings.broker_id is not None else known_id
    if known_id is None:
        _check_whose(disk, settings.log_dirs, metadata, wanted_id)
    return metadata.prepare(wanted_id, settings.reserved_broker_id_max, known_cluster or to_text(new_uuid()))


def config_changes(
    settings: Settings, tree: Tree, membership: Membership, listeners: Sequence[Listener], shell: Shell
) -> ConfigChanges:
    reconfiguration = Reconfiguration(settings, listeners, shell.movers)
    encoder = password_encoder(settings.configs)
    return ConfigChanges(tree, membership.broker_id, settings.configs, encoder, reconfiguration.prepare)


def check_unlocked(disk: RealDisk, directories: Sequence[Path]) -> None:
    """Raises DirectoryInUse if a broker has one of them: that then says better what is wrong."""
    for directory in directories:
        lock = directory / LOCK
        if lock.exists():
            disk.lock(str(lock)).release()


def _known_identity(disk: RealDisk, directories: Sequence[Path]) -> tuple[BrokerId | None, str | None]:
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
    has_brokers = [path for path in directories if any(path.glob("broker*/" + META_PROPERTIES))]
    topics = metadata.topics().values() if has_logs or has_brokers else ()
    replicas = {broker_id for topic in topics for partition in topic.partitions for broker_id in partition.replicas}
    if replicas and wanted_id not in replicas and not has_logs:
        raise WrongDirectory(
            f"{has_brokers[0]} holds the data of a cluster whose brokers are started together: start it with "
            f"--brokers {len(list(has_brokers[0].glob('broker*')))}, or name another data directory"
        )
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


def topic_configs(topics: Mapping[TopicName, TopicInfo]) -> Callable[[TopicName], Mapping[str, str]]:
    """Returns what gives a topic's configuration."""
    return lambda name: topics[name].configs if name in topics else {}


def opened_storage(
    settings: Settings,
    configs_of: Callable[[TopicName], Mapping[str, str]],
    membership: Membership,
    disk: RealDisk,
    now: TimestampMs,
) -> Storage:
    @cache
    def config_of(name: TopicName) -> LogConfig:
        return log_config(settings.configs.for_topic(configs_of(name)))

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


def data_dirs(settings: Settings) -> list[Path]:
    """Returns where logs lie, and where metadata does: a metadata log of Apache Kafka may be in either."""
    return list(dict.fromkeys((*settings.log_dirs, settings.metadata_dir)))


def endpoints(listeners: Sequence[Listener], wanted: Sequence[ListenerSettings]) -> tuple[Endpoint, ...]:
    return tuple(
        (listener.advertised or Endpoint(listener.name, listener.host or "localhost", listener.port))._replace(
            protocol=settings.protocol.value
        )
        for listener, settings in zip(listeners, wanted, strict=True)
    )


def random_int31() -> int:
    return int.from_bytes(os.urandom(4), "big") & INT32_MAX


def new_uuid() -> Uuid:
    while not is_usable(uuid := Uuid(os.urandom(UUID_BYTES))):
        pass
    return uuid
