"""Puts together a broker that shares its metadata with others: it registers, and its controller says what it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.api.gate import InterBrokerGate
from odradek.app.config import Settings
from odradek.app.data_dirs import report
from odradek.app.listeners import INTER_BROKER_LISTENER, inter_broker_listener
from odradek.app.opening import (
    begin_configs,
    claimed,
    config_changes,
    endpoints,
    new_uuid,
    opened_storage,
    random_int31,
    topic_configs,
)
from odradek.coordination.renewed import RenewedTree
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.core.broker import Broker
from odradek.core.cluster import BrokerInfo, ClusterView
from odradek.core.configs.definition import ConfigError
from odradek.core.entropy import Entropy
from odradek.core.inter_broker_protocol import protocol_of
from odradek.core.replicas import is_held
from odradek.core.storage import Storage
from odradek.log.disk import RealDisk
from odradek.log.loading import make_durable_directory
from odradek.log.unsynced import UnsyncedDisk
from odradek.net.cluster_member import ClusterMember
from odradek.net.config_watch import ConfigWatch
from odradek.net.listener import Listener
from odradek.net.shared_metadata import SharedMetadata
from odradek.net.shell import Shell

if TYPE_CHECKING:
    from odradek.tls.contexts import Contexts


def open_member(
    settings: Settings,
    shell: Shell,
    listeners: Sequence[Listener],
    unready: Mapping[str, ConfigError],
    *,
    durable: bool,
    opens_tree: Callable[..., SqliteTree],
) -> RenewedTree:
    """Opens the logs, joins the cluster and gives the broker to the shell; raises as building.start."""
    disk, now = (RealDisk if durable else UnsyncedDisk)(shell.room.opened), shell.now()
    timeout_ms = settings.configs.int("zookeeper.session.timeout.ms")
    where, tree = _tree(settings, disk, timeout_ms, durable, opens_tree)
    storage: Storage | None = None
    try:
        metadata = SharedMetadata(tree, where, protocol_of(settings.configs).registration)
        membership = claimed(settings, disk, metadata)
        changes = config_changes(settings, tree, membership, listeners, shell)
        watch = ConfigWatch(tree, membership.broker_id, changes)
        watch.begin()
        begin_configs(settings, changes, listeners, unready)
        view = metadata.view()
        _check_replicas(view, where)
        storage = opened_storage(settings, topic_configs(view.topics), membership, disk, now.wall)
        if view.topics or view.unreadable:
            storage.set_strays_aside(partial(is_held, membership.broker_id, view), now.wall)
        info = BrokerInfo(membership.broker_id, endpoints(listeners, settings.listeners), settings.rack)
        epoch = metadata.enroll(info, lambda: shell.now().wall, 2 * timeout_ms)
        alone = ClusterView(membership.cluster_id, brokers={info.id: info})
        broker = Broker(info.id, alone, storage, settings.configs, Entropy(random_int31, new_uuid))
        broker.controlled.broker_epoch = epoch
        broker.start(shell.now())
        report(storage)
        listener = inter_broker_listener(settings.configs, settings.listeners)
        if settings.configs.optional_str(INTER_BROKER_LISTENER) and len(settings.listeners) > 1:
            shell.gate = InterBrokerGate(listener)
        shell.member = ClusterMember(
            shell,
            broker,
            tree,
            metadata,
            info,
            listener=listener,
            patience_ms=2 * timeout_ms,
            configs=watch,
            tls=_contexts(settings, listener),
        )
        shell.run(broker, metadata.change, partial(metadata.take_producer_ids, info.id), changes.change)
        shell.watch_configs(watch)
        shell.member.start()
    except BaseException:
        tree.close()
        for directory in storage or ():
            directory.abandon()
        raise
    return tree


def _check_replicas(view: ClusterView, where: str) -> None:
    """Raises ConfigError for topics that nobody here can keep: no broker follows another yet."""
    for topic in view.topics.values():
        if any(len(partition.replicas) > 1 for partition in topic.partitions):
            raise ConfigError(
                f"The metadata in {where} has topics with several replicas ({topic.name}), "
                "which this broker can't keep yet."
            )


def _tree(
    settings: Settings, disk: RealDisk, timeout_ms: int, durable: bool, opens_tree: Callable[..., SqliteTree]
) -> tuple[str, RenewedTree]:
    """Opens the tree at zookeeper.connect, or in the file that all brokers share; returns also where it is."""
    connect = settings.configs.optional_str("zookeeper.connect")
    if connect:
        from odradek.app.zookeeper_settings import zookeeper_settings

        ensemble = zookeeper_settings(settings.configs)
        return connect, RenewedTree(partial(ensemble.open, makes_chroot=True))
    make_durable_directory(disk, str(settings.metadata_dir))
    file = settings.metadata_dir / METADATA_FILE
    tree = RenewedTree(partial(opens_tree, file, session_timeout_ms=timeout_ms, durable=durable))
    return str(settings.metadata_dir), tree


def _contexts(settings: Settings, listener: str) -> Contexts | None:
    """Returns what makes a client's contexts of the listener's own stores.  Raises ConfigError."""
    config = settings.tls.get(listener)
    if config is None:
        return None
    from odradek.tls.contexts import Contexts, client_context
    from odradek.tls.errors import TlsConfigError

    try:
        return Contexts(config, client_context)
    except TlsConfigError as error:
        raise ConfigError(str(error)) from None
