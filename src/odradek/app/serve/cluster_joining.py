"""Startup of a broker in its cluster: open its logs and join, even if it is the only broker.

The controller then decides which partitions the broker leads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from odradek.api.request.gate import InterBrokerGate
from odradek.app.config.listener_config import INTER_BROKER_LISTENER, inter_broker_listener
from odradek.app.config.server_config import Settings
from odradek.app.serve.adoption import Adoption
from odradek.app.serve.boot_ids import may_have_lost, this_boot
from odradek.app.serve.broker_identity import (
    apply_starting_configs,
    check_unlocked,
    claim_identity,
    config_changes,
    data_dirs,
    endpoints,
    new_uuid,
    open_broker_storage,
    random_int31,
    topic_configs,
)
from odradek.app.serve.data_dirs import report
from odradek.base.units import BrokerId, TimestampMs, TopicPartition
from odradek.base.uuids import Uuid
from odradek.coordination.acls import first_acl
from odradek.coordination.reconnecting_tree import ReconnectingTree
from odradek.coordination.sqlite import MAINTENANCE_MS_MAX, METADATA_FILE, SqliteTree
from odradek.core.broker.broker import Broker
from odradek.core.broker.replicas import is_assigned
from odradek.core.configs.definition import ConfigError
from odradek.core.configs.inter_broker_protocol import protocol_of
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView
from odradek.core.kernel.entropy import Entropy
from odradek.core.partition.storage import NoDirectory, Storage
from odradek.log.directory.directory_loading import make_durable_directory
from odradek.log.files.disk import RealDisk
from odradek.log.files.unsynced import UnsyncedDisk
from odradek.net.clients.listener import Listener
from odradek.net.cluster.cluster_member import ClusterMember
from odradek.net.cluster.config_watch import ConfigWatch
from odradek.net.cluster.metadata_changes import MetadataChanges
from odradek.net.cluster.single_broker_metadata import SingleBrokerMetadata
from odradek.net.cluster.tree_metadata import AnotherBroker, Membership, Metadata
from odradek.net.cluster.unclean_shutdown import await_replacement
from odradek.net.shell.shell import Shell

if TYPE_CHECKING:
    from odradek.core.controller.events import Event
    from odradek.net.cluster.controller_updates import Shell as MemberShell
    from odradek.net.cluster.peer_connections import Peers
    from odradek.tls.ssl_contexts import Contexts

log = logging.getLogger(__name__)


async def open_broker(
    settings: Settings,
    shell: Shell,
    listeners: Sequence[Listener],
    unready: Mapping[str, ConfigError],
    *,
    durable: bool,
    open_tree: Callable[..., SqliteTree],
) -> ReconnectingTree:
    """Open the logs, join the cluster, and hand the broker to the shell.

    Raise the errors of app/serve/broker_startup.start.
    """
    disk = (RealDisk if durable else UnsyncedDisk)(shell.room.on_opened)
    timeout_ms = settings.configs.int("zookeeper.session.timeout.ms")
    where, tree = _tree(settings, disk, timeout_ms, durable, open_tree)
    with ExitStack() as cleanup:
        cleanup.callback(tree.close)
        _check_acls(settings, tree, where)
        metadata = _metadata(settings, tree, where)
        membership = _claim_identity(settings, disk, metadata)
        changes = config_changes(settings, tree, membership, listeners, shell)
        watch = ConfigWatch(tree, membership.broker_id, changes)
        watch.skip_existing_notices()
        apply_starting_configs(settings, changes, listeners, unready)
        info = BrokerInfo(membership.broker_id, endpoints(listeners, settings.listeners), settings.rack)
        if settings.is_member:
            metadata.check_id_is_free(info, 2 * timeout_ms)
        storage, view = _open_storage(settings, disk, metadata, membership, now=shell.now().wall, cleanup=cleanup)
        if settings.is_member:
            replicas = _replicas(view, membership.broker_id)
            missing = storage.missing_replicas(replicas)
            doubtful = list(replicas) if may_have_lost(storage, this_boot()) else missing
            if doubtful:
                await await_replacement(tree, membership.broker_id, doubtful, 4 * timeout_ms, missing)
        epoch = metadata.register_broker(info, lambda: shell.now().wall, 2 * timeout_ms)
        lone_view = ClusterView(membership.cluster_id, brokers={info.id: info}, unreadable=view.unreadable)
        broker = Broker(info.id, lone_view, storage, settings.configs, Entropy(random_int31, new_uuid))
        broker.on_registered(epoch)
        broker.start(shell.now())
        report(storage)
        make_peers = _peers_factory(settings, shell) if settings.is_member else None
        shell.member = ClusterMember(
            shell, broker, tree, metadata, info, timeout_ms=2 * timeout_ms, configs=watch, make_peers=make_peers
        )
        take_ids = partial(metadata.take_producer_ids, info.id)
        shell.run(broker, MetadataChanges(tree, metadata).change, take_ids, changes.change)
        shell.watch_configs(watch)
        shell.member.start()
        cleanup.pop_all()
    return tree


def _check_acls(settings: Settings, tree: ReconnectingTree, where: str) -> None:
    """Raise ConfigError for ACLs in the tree, which this broker does not enforce, unless insecure."""
    path = first_acl(tree)
    if path is None:
        return
    if not settings.insecure:
        raise ConfigError(
            f"The metadata in {where} has ACLs ({path}), but access control is not supported yet, "
            "and every client would be served: pass --insecure to allow this."
        )
    log.warning("the ACLs in %s have no effect: every client that can reach a listener has all permissions", where)


def _replicas(view: ClusterView, broker: BrokerId) -> dict[TopicPartition, Uuid]:
    """Return the broker's replicas, each with its topic's id."""
    return {
        TopicPartition(topic.name, index): topic.id
        for topic in view.topics.values()
        for index, partition in enumerate(topic.partitions)
        if broker in partition.replicas
    }


def _claim_identity(settings: Settings, disk: RealDisk, metadata: Metadata) -> Membership:
    try:
        return claim_identity(settings, disk, metadata)
    except AnotherBroker:
        check_unlocked(disk, settings.log_dirs)
        raise


def _open_storage(
    settings: Settings,
    disk: RealDisk,
    metadata: Metadata,
    membership: Membership,
    *,
    now: TimestampMs,
    cleanup: ExitStack,
) -> tuple[Storage, ClusterView]:
    """Open the logs, to be abandoned by `cleanup`. Also return the cluster's view."""
    # Read before the logs are opened, because recovery uses their configuration.
    adoption = _adoption(settings, disk, metadata, membership)
    view = metadata.view()
    configs_of = topic_configs(view.topics) if adoption is None else adoption.configs
    storage = open_broker_storage(settings, configs_of, membership, disk, now)
    for directory in storage:
        cleanup.callback(directory.abandon)
    if adoption is not None and isinstance(metadata, SingleBrokerMetadata):
        _adopt(storage, metadata, membership, adoption)
        view = metadata.view()
    # Skipped if the cluster has no topics at all: the tree itself may have been lost.
    if view.topics or view.unreadable:
        storage.set_strays_aside(partial(is_assigned, membership.broker_id, view), now)
    return storage, view


def _metadata(settings: Settings, tree: ReconnectingTree, where: str) -> Metadata:
    registration = protocol_of(settings.configs).registration
    return (Metadata if settings.is_member else SingleBrokerMetadata)(tree, where, registration)


def _peers_factory(settings: Settings, shell: Shell) -> Callable[[MemberShell, Broker, Callable[[Event], None]], Peers]:
    """Return a factory of connections to other brokers, and restrict their listener to brokers.

    Raise ConfigError.
    """
    from odradek.net.cluster.peer_connections import Peers  # A single broker saves the time and memory.

    listener = inter_broker_listener(settings.configs, settings.listeners)
    if settings.configs.optional_str(INTER_BROKER_LISTENER) and len(settings.listeners) > 1:
        shell.gate = InterBrokerGate(listener)
    return partial(Peers, listener=listener, tls=_contexts(settings, listener))


def _adoption(settings: Settings, disk: RealDisk, metadata: Metadata, membership: Membership) -> Adoption | None:
    """Return the knowledge about topics that another broker wrote, or None if they may not be adopted."""
    if not isinstance(metadata, SingleBrokerMetadata) or metadata.had_topics:
        return None
    return Adoption.read(disk, data_dirs(settings), settings.configs, membership.broker_id)


def _adopt(storage: Storage, metadata: SingleBrokerMetadata, membership: Membership, adoption: Adoption) -> None:
    """Adopt topics whose logs another broker wrote."""
    found = storage.topics()
    failed = next((one for one in storage if one.failure is not None), None)
    if found and failed is not None:
        text = "the topics in the data directories cannot be adopted while a directory is offline"
        raise NoDirectory(f"{failed.path} is unusable, and {text}: {failed.failure}.")
    topics = adoption.topics(found, membership.broker_id, new_uuid)
    if topics:
        metadata.adopt(topics)
    storage.adopted([topic.name for topic in topics])
    adoption.log_adopted(topics, found)


def _tree(
    settings: Settings, disk: RealDisk, timeout_ms: int, durable: bool, open_tree: Callable[..., SqliteTree]
) -> tuple[str, ReconnectingTree]:
    """Open the tree at zookeeper.connect or in this machine's file. Also return its location."""
    connect = settings.configs.optional_str("zookeeper.connect")
    if connect:
        from odradek.app.config.zookeeper_settings import zookeeper_settings

        ensemble = zookeeper_settings(settings.configs)
        return connect, ReconnectingTree(partial(ensemble.open, makes_chroot=True))
    make_durable_directory(disk, str(settings.metadata_dir))
    file = settings.metadata_dir / METADATA_FILE
    opens = partial(open_tree, file, session_timeout_ms=timeout_ms, durable=durable)
    if not settings.is_member:  # The only writer needs no polling.
        opens = partial(opens, poll_ms=MAINTENANCE_MS_MAX)
    return str(settings.metadata_dir), ReconnectingTree(opens)


def _contexts(settings: Settings, listener: str) -> Contexts | None:
    """Return the client contexts from the listener's own stores. Raise ConfigError."""
    config = settings.tls.get(listener)
    if config is None:
        return None
    from odradek.tls.ssl_contexts import Contexts, client_context
    from odradek.tls.tls_errors import TlsConfigError

    try:
        return Contexts(config, client_context)
    except TlsConfigError as error:
        raise ConfigError(str(error)) from None
