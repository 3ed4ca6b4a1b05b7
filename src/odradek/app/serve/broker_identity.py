"""Prerequisites of a broker: the owner of its directories, its logs and its addresses."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from odradek.app.config.listener_config import Listener as ListenerSettings
from odradek.app.config.server_config import Settings
from odradek.app.serve.data_dirs import open_storage
from odradek.app.serve.reconfiguration import Reconfiguration, password_encoder
from odradek.base.units import INT32_MAX, BrokerId, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import UUID_BYTES, Uuid, is_usable, to_text
from odradek.coordination.tree import Tree
from odradek.core.configs.definition import ConfigError
from odradek.core.kernel.cluster_view import Endpoint, TopicInfo
from odradek.core.partition.storage import Storage, log_config
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed, RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import LOCK, META_PROPERTIES, parse_partition
from odradek.log.files.meta_properties import WrongDirectory, check_identity, identity, noted_identity
from odradek.net.clients.listener import Listener
from odradek.net.cluster.config_writer import ConfigChanges
from odradek.net.cluster.tree_metadata import Membership, Metadata
from odradek.net.shell.shell import Shell


def apply_starting_configs(
    settings: Settings, changes: ConfigChanges, listeners: Sequence[Listener], unready: Mapping[str, ConfigError]
) -> None:
    """Apply dynamic configurations. Raise ConfigError if a listener still has no certificate."""
    configs, apply_configs = changes.read_starting_configs()
    settings.configs.replace_values(configs)
    apply_configs()
    for listener in listeners:
        if listener.name in unready and listener.entrance is None:
            raise unready[listener.name]


def claim_identity(settings: Settings, disk: RealDisk, metadata: Metadata) -> Membership:
    """Return this broker's membership from its directories and the tree.

    All directories are checked before anything is written to one of them. Raise WrongDirectory, AnotherBroker.
    """
    known_id, known_cluster = _known_identity(disk, settings.log_dirs)
    expected_id = settings.broker_id if settings.broker_id is not None else known_id
    _check_identities(disk, settings.log_dirs, expected_id, known_cluster)
    if known_id is None:
        _check_owner(disk, settings.log_dirs, metadata, expected_id)
    else:
        _check_is_replica(disk, settings.log_dirs, metadata, known_id)
    membership = metadata.prepare(expected_id, settings.reserved_broker_id_max, known_cluster or to_text(new_uuid()))
    _check_identities(disk, settings.log_dirs, membership.broker_id, membership.cluster_id)
    return membership


def config_changes(
    settings: Settings, tree: Tree, membership: Membership, listeners: Sequence[Listener], shell: Shell
) -> ConfigChanges:
    reconfiguration = Reconfiguration(settings, listeners, shell.movers)
    encoder = password_encoder(settings.configs)
    return ConfigChanges(tree, membership.broker_id, settings.configs, encoder, reconfiguration.prepare)


def check_unlocked(disk: RealDisk, directories: Sequence[Path]) -> None:
    """Raise DirectoryInUse if a broker has locked one of them, which is a better explanation."""
    for directory in directories:
        lock = directory / LOCK
        if lock.exists():
            disk.lock(str(lock)).release()


def _known_identity(disk: RealDisk, directories: Sequence[Path]) -> tuple[BrokerId | None, str | None]:
    """Return the ids of the first meta.properties with a broker id; the others are compared with it."""
    for directory in directories:
        with suppress(DiskFailed):  # Reported when the directory is opened.
            broker_id, cluster_id = identity(disk, str(directory))
            if broker_id is not None:
                return broker_id, cluster_id
    return None, None


def _check_identities(
    disk: RealDisk, directories: Sequence[Path], broker_id: BrokerId | None, cluster_id: str | None
) -> None:
    for directory in directories:
        with suppress(DiskFailed):
            check_identity(disk, str(directory), broker_id, cluster_id)


def _check_is_replica(disk: RealDisk, directories: Sequence[Path], metadata: Metadata, broker_id: BrokerId) -> None:
    """Raise WrongDirectory if the metadata assigns all logs here to other brokers.

    In that case the broker id is damaged, or the tree belongs to another cluster. Only the first start on a directory
    checks this: later, the directory's own note names its owner, and a broker may return after all of its replicas were
    reassigned.
    """
    unmarked = [path for path in directories if not _is_noted(disk, str(path))]
    local = {partition: path for path in unmarked for partition in _partitions(disk, str(path))}
    topics = metadata.topics() if local else {}
    replicas = {partition: _replicas_of(topics, partition) for partition in local}
    owners = {broker for ids in replicas.values() for broker in ids}
    if owners and broker_id not in owners:
        path = next(local[partition] for partition, ids in replicas.items() if ids)
        raise WrongDirectory(
            f"{path / META_PROPERTIES} contains broker.id={broker_id}, but the metadata assigns its logs to "
            f"{', '.join(map(str, sorted(owners)))} only: restore the correct {META_PROPERTIES}, or use another data "
            "directory"
        )


def _is_noted(disk: RealDisk, directory: str) -> bool:
    try:
        return noted_identity(disk, directory) is not None
    except DiskFailed:
        return True  # Unknown, and reported when the directory is opened.


def _replicas_of(topics: Mapping[TopicName, TopicInfo], partition: TopicPartition) -> Sequence[BrokerId]:
    topic = topics.get(partition.topic)
    if topic is None or partition.partition >= len(topic.partitions):
        return ()
    return topic.partitions[partition.partition].replicas


def _check_owner(disk: RealDisk, directories: Sequence[Path], metadata: Metadata, expected_id: BrokerId | None) -> None:
    """Raise WrongDirectory for logs that may be another broker's, which would be useless under a new id."""
    has_logs = [path for path in directories if _partitions(disk, str(path))]
    has_brokers = [path for path in directories if any(path.glob("broker*/" + META_PROPERTIES))]
    topics = metadata.topics().values() if has_logs or has_brokers else ()
    replicas = {broker_id for topic in topics for partition in topic.partitions for broker_id in partition.replicas}
    if replicas and expected_id not in replicas and not has_logs:
        raise WrongDirectory(
            f"{has_brokers[0]} contains the data of a cluster of several local brokers: start it with "
            f"--brokers {len(list(has_brokers[0].glob('broker*')))}, or use another data directory"
        )
    if replicas and expected_id not in replicas:
        ids = ", ".join(map(str, sorted(replicas)))
        raise WrongDirectory(
            f"{has_logs[0]} contains logs, but no meta.properties with the broker id: set broker.id "
            f"(the metadata contains {ids}), or use another data directory"
        )


def _partitions(disk: RealDisk, directory: str) -> list[TopicPartition]:
    try:
        names = [entry.name for entry in disk.entries(directory) if entry.size < 0]
    except DiskFailed:
        return []  # Unreadable, which is reported on opening.
    return [partition for name in names if (partition := parse_partition(name)) is not None]


def topic_configs(topics: Mapping[TopicName, TopicInfo]) -> Callable[[TopicName], Mapping[str, str]]:
    """Return a function that returns a topic's configuration."""
    return lambda name: topics[name].configs if name in topics else {}


def open_broker_storage(
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
    """Return the directories of logs and of metadata: a metadata log of Apache Kafka may be in either."""
    return list(dict.fromkeys((*settings.log_dirs, settings.metadata_dir)))


def endpoints(listeners: Sequence[Listener], listener_settings: Sequence[ListenerSettings]) -> tuple[Endpoint, ...]:
    return tuple(
        (listener.advertised or Endpoint(listener.name, listener.host or "localhost", listener.port))._replace(
            protocol=each.protocol.value
        )
        for listener, each in zip(listeners, listener_settings, strict=True)
    )


def random_int31() -> int:
    return int.from_bytes(os.urandom(4), "big") & INT32_MAX


def new_uuid() -> Uuid:
    while not is_usable(uuid := Uuid(os.urandom(UUID_BYTES))):
        pass
    return uuid
