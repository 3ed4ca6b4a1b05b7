"""Watch on configuration changes by other brokers and Kafka's tools, based on notices in the tree.

    /config/changes/config_change_0000000007 ──> whose configuration changed ──> /config/topics/flights as it is now

Notices are read in the thread that changes the tree. Configurations that are read, and changes made by this broker,
thus reach the broker in the tree's order. A notice only triggers reading: a thousand notices for one topic cause one
read of its configuration, and notices for this broker's own changes find nothing new. If a notice may have been missed,
everything is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

from odradek.base.errors import Refused
from odradek.base.units import BrokerId, TopicName
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.tree import (
    NoNode,
    SessionExpired,
    SessionState,
    Tree,
    TreeFailed,
    WatchEvent,
    children_if_there,
)
from odradek.core.broker.broker import Broker
from odradek.core.broker.config_handlers import apply_remote_configs
from odradek.core.broker.effects import Altered
from odradek.core.kernel.topic_names import checked
from odradek.net.cluster.config_writer import ConfigChanges
from odradek.net.cluster.controller_updates import Shell

_LOG = logging.getLogger(__name__)

READ_AGAIN_SECONDS = 1.0  # After the tree could not be reached.
NO_REQUEST = 0  # Token of changes without a request; tokens of requests start at 1.


class ConfigNotices(NamedTuple):
    """Existing notices and the number ever created, in the folder created by the transaction `folder`."""

    folder: int
    created: int
    names: frozenset[str]


NO_FOLDER = ConfigNotices(0, 0, frozenset())


class ChangedOwners(NamedTuple):
    """Owners whose configurations have changed."""

    topics: set[TopicName]
    broker: bool  # This broker's configuration, or that of all brokers.


class ConfigWatch:
    """Watch of one broker on configuration notices.

    `read` is called in the thread that changes the tree; `skip_existing_notices` is called before the first
    `read`. The tree's watches report news on their own thread.
    """

    def __init__(self, tree: Tree, broker_id: BrokerId, changes: ConfigChanges) -> None:
        self._tree = tree
        self._changes = changes
        self._owners = str(broker_id), layout.DEFAULT_ENTITY
        self._soon: Callable[[], None] | None = None
        self._seen: ConfigNotices | None = None  # None: unknown which notices were missed.
        self._is_suspended = False
        self._is_lost = False  # Contact was lost for a while, and earlier watches no longer exist.
        self._is_due = False  # `_soon` was called, and reading has not started.
        self._is_failing = False  # The last reading failed, and this was logged.
        tree.on_session(self._on_session_state)

    def skip_existing_notices(self) -> None:
        """Treat existing notices as read; the caller reads the configurations afterwards.

        Without this call, the first reading reads everything. Raises TreeFailed.
        """
        self._seen = self._notices()

    def start(self, soon: Callable[[], None]) -> None:
        """Call `soon` now and whenever there is news to `read`; `soon` may be called in any thread."""
        self._soon = soon
        self._notify()

    def stop(self) -> None:
        """Stop notifying and reading."""
        self._soon = None

    def on_renewed(self) -> None:
        """Read and watch everything again in a new session, as the session of the watches has expired."""
        self._is_lost = True
        self._notify()

    def _on_session_state(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self._is_suspended = True
        elif state is SessionState.CONNECTED and self._is_suspended:
            self._is_suspended, self._is_lost = False, True
            self._notify()

    def _on_change(self, _: WatchEvent) -> None:
        self._notify()

    def _notify(self) -> None:
        soon = self._soon
        if soon is not None and not self._is_due:
            self._is_due = True
            soon()

    def read(self) -> Altered | None:
        """Return changes since the last reading, or None if it must be retried a little later."""
        self._is_due = False
        if self._soon is None:
            return Altered(NO_REQUEST)
        try:
            altered = self._read()
        except SessionExpired:
            return Altered(NO_REQUEST)  # `on_renewed` triggers a complete reading.
        except TreeFailed as failed:
            if not self._is_failing:
                _LOG.warning("failed to read changed configurations (will retry): %s", failed)
            self._is_failing = True
            return None
        self._is_failing = False
        return altered

    def _read(self) -> Altered:
        if self._is_lost:
            self._is_lost, self._seen = False, None
        seen, self._seen = self._seen, None  # If a step below fails, the next reading reads everything.
        notices = self._notices()
        named = None if seen is None or notices.folder != seen.folder else self._named(seen, notices)
        topics = self._topics(self._all_topics() if named is None else named.topics)
        # Last, because it changes the known values of the broker.
        prepared = self._changes.reread() if named is None or named.broker else None
        self._seen = notices if seen is None or named is None else notices._replace(created=_seen_count(seen, notices))
        if prepared is None:
            return Altered(NO_REQUEST, topics)
        configs, apply = prepared
        return Altered(NO_REQUEST, topics, configs, (apply,))

    def _notices(self) -> ConfigNotices:
        """Return the notices, and watch them."""
        stat = self._tree.exists(layout.CONFIG_CHANGES, self._on_change)
        if stat is None:
            return NO_FOLDER
        names: list[str] = []
        with suppress(NoNode):
            names = self._tree.children(layout.CONFIG_CHANGES, self._on_change)
        # `cversion` counts creations and deletions. More may have been created before the names were read.
        created = max((stat.cversion + stat.num_children) // 2, _created_count(names))
        return ConfigNotices(stat.czxid, created, frozenset(names))

    def _named(self, seen: ConfigNotices, notices: ConfigNotices) -> ChangedOwners | None:
        """Return the owners in new notices, or None if some notices were deleted before they were read.

        A writer of a notice deletes old ones by its own clock, which may be wrong.
        """
        if notices.created > _seen_count(seen, notices):
            return None
        paths = [f"{layout.CONFIG_CHANGES}/{name}" for name in sorted(notices.names - seen.names)]
        named = ChangedOwners(set(), broker=False)
        for path, node in zip(paths, self._tree.get_all(paths), strict=True):
            if node is None:
                return None
            try:
                named = self._add_entity(named, layout.decode_config_change(node[0]))
            except (BadZnodeError, Refused) as bad:
                _LOG.error("failed to read %s: %s", path, bad)
        return named

    def _add_entity(self, named: ChangedOwners, entity: str) -> ChangedOwners:
        """Add the owner in a notice, such as `topics/flights`; ignore owners other than topics and brokers."""
        kind, _, name = entity.partition("/")
        if kind == layout.TOPIC_CONFIGS:
            named.topics.add(checked(name))
        elif kind == layout.BROKER_CONFIGS and name in self._owners:
            return named._replace(broker=True)
        return named

    def _all_topics(self) -> list[TopicName]:
        return list(map(TopicName, children_if_there(self._tree, layout.TOPICS)))

    def _topics(self, named: Iterable[TopicName]) -> dict[TopicName, Mapping[str, str]]:
        """Return overrides of topics; omit deleted topics and topics with unreadable configurations."""
        names = sorted(named)
        paths = [layout.config(layout.TOPIC_CONFIGS, name) for name in names]
        topics: dict[TopicName, Mapping[str, str]] = {}
        bare: list[TopicName] = []
        for name, path, node in zip(names, paths, self._tree.get_all(paths), strict=True):
            if node is None:
                bare.append(name)
                continue
            try:
                topics[name] = layout.decode_config(node[0])
            except BadZnodeError as bad:
                _LOG.error("kept the previous configuration of topic %s: failed to read %s: %s", name, path, bad)
        found = self._tree.get_all([layout.topic(name) for name in bare])
        topics.update((name, {}) for name, node in zip(bare, found, strict=True) if node is not None)
        return topics


class WatchedConfigs:
    """Application of watched changes, in slices, until it is stopped; on the loop's thread."""

    def __init__(self, shell: Shell, broker: Broker, watch: ConfigWatch) -> None:
        self._shell = shell
        self._broker = broker
        self._watch = watch
        self._is_stopped = False
        watch.start(self._on_change)

    def stop(self) -> None:
        self._watch.stop()
        self._is_stopped = True

    def _on_change(self) -> None:
        """Schedule a reading; called in any thread."""
        if not self._is_stopped:
            self._shell.loop.call_soon_threadsafe(self._read)

    def _read(self) -> None:
        self._shell.in_order(self._watch.read, self._on_read)

    def _on_read(self, done: Future[Altered | None]) -> None:
        failure = done.exception()
        if isinstance(failure, AssertionError):
            raise failure
        if failure is not None:
            _LOG.error("unexpected error while reading changed configurations", exc_info=failure)
        found = None if failure is not None else done.result()
        if found is None:
            self._shell.loop.call_later(READ_AGAIN_SECONDS, self._read)
        else:
            self._shell.add_slices(apply_remote_configs(self._broker, found, self._shell.now()))


def _created_count(names: list[str]) -> int:
    """Return the minimum number of notices ever created, from the sequence number of the last one."""
    for name in reversed(names):
        with suppress(ValueError):
            return layout.sequence_of(name, layout.CONFIG_CHANGE_PREFIX) + 1
    return 0


def _seen_count(seen: ConfigNotices, notices: ConfigNotices) -> int:
    """Return how many of the notices ever created were seen."""
    return seen.created + len(notices.names - seen.names)
