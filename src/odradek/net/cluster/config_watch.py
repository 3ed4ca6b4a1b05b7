"""What other brokers, and Apache Kafka's tools, have changed in the configurations: by the notices of it in the tree.

    /config/changes/config_change_0000000007 ──> whose configuration changed ──> /config/topics/flights as it is now

Notices are read in the thread that changes the tree, so that what is read, and what this broker has changed itself,
come to the broker in the order in which they are in the tree.  A notice is of no worth by itself: a thousand of one
topic are one reading of its configuration, those of this broker's own changes find nothing new, and when one may have
been missed everything is read.
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
from odradek.core.broker.config_handlers import put_news_in_force
from odradek.core.broker.effects import Altered
from odradek.core.kernel.topic_names import checked
from odradek.net.cluster.config_writer import ConfigChanges
from odradek.net.cluster.controller_updates import Shell

_LOG = logging.getLogger(__name__)

READ_AGAIN_SECONDS = 1.0  # After the tree could not be reached.
NOBODY_WAITS = 0  # The token of what no request has asked for: those of requests begin at 1.


class Notices(NamedTuple):
    """The notices that are there, and how many were ever made, in the folder that the change `folder` made."""

    folder: int
    made: int
    names: frozenset[str]


NO_FOLDER = Notices(0, 0, frozenset())


class Named(NamedTuple):
    """Whose configurations have changed."""

    topics: set[TopicName]
    broker: bool  # This one's, or that of all brokers.


class ConfigWatch:
    """One broker's watch on the notices.  `read` is called in the thread that changes the tree, `begin` before it is.

    The tree has it tell of news on the thread of its watches.
    """

    def __init__(self, tree: Tree, broker_id: BrokerId, changes: ConfigChanges) -> None:
        self._tree = tree
        self._changes = changes
        self._owners = str(broker_id), layout.DEFAULT_ENTITY
        self._soon: Callable[[], None] | None = None
        self._seen: Notices | None = None  # None: nobody knows what was missed.
        self._is_suspended = False
        self._is_lost = False  # There was no contact for a while, and the watches set before it are gone.
        self._is_due = False  # `_soon` was called, and the reading has not begun.
        self._is_failing = False  # The last reading failed, and it was logged.
        tree.on_session(self._session_is)

    def begin(self) -> None:
        """Takes the notices that are there as read: whoever calls this reads the configurations afterwards.

        Without it the first reading is of everything.  Raises TreeFailed.
        """
        self._seen = self._notices()

    def start(self, soon: Callable[[], None]) -> None:
        """Has `soon` called when there is something to `read`, now for the first time; in any thread."""
        self._soon = soon
        self._tell()

    def stop(self) -> None:
        """Ends it: nothing is told or read any more."""
        self._soon = None

    def renewed(self) -> None:
        """Has everything read and watched anew: the session that set the watches has ended, and another has begun."""
        self._is_lost = True
        self._tell()

    def _session_is(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self._is_suspended = True
        elif state is SessionState.CONNECTED and self._is_suspended:
            self._is_suspended, self._is_lost = False, True
            self._tell()

    def _changed(self, _: WatchEvent) -> None:
        self._tell()

    def _tell(self) -> None:
        soon = self._soon
        if soon is not None and not self._is_due:
            self._is_due = True
            soon()

    def read(self) -> Altered | None:
        """Returns what may have changed since the last reading; None if it has to be tried again a little later."""
        self._is_due = False
        if self._soon is None:
            return Altered(NOBODY_WAITS)
        try:
            altered = self._read()
        except SessionExpired:
            return Altered(NOBODY_WAITS)  # `renewed` has everything read.
        except TreeFailed as failed:
            if not self._is_failing:
                _LOG.warning("changed configurations can't be read now and will be: %s", failed)
            self._is_failing = True
            return None
        self._is_failing = False
        return altered

    def _read(self) -> Altered:
        if self._is_lost:
            self._is_lost, self._seen = False, None
        seen, self._seen = self._seen, None  # What fails below is read again, and everything with it.
        notices = self._notices()
        named = None if seen is None or notices.folder != seen.folder else self._named(seen, notices)
        topics = self._topics(self._all_topics() if named is None else named.topics)
        # Last, as it changes what is known of the broker's own values.
        prepared = self._changes.reread() if named is None or named.broker else None
        self._seen = notices if seen is None or named is None else notices._replace(made=_accounted(seen, notices))
        if prepared is None:
            return Altered(NOBODY_WAITS, topics)
        configs, in_force = prepared
        return Altered(NOBODY_WAITS, topics, configs, (in_force,))

    def _notices(self) -> Notices:
        """Returns the notices, and sets the watch on them."""
        stat = self._tree.exists(layout.CONFIG_CHANGES, self._changed)
        if stat is None:
            return NO_FOLDER
        names: list[str] = []
        with suppress(NoNode):
            names = self._tree.children(layout.CONFIG_CHANGES, self._changed)
        # `cversion` counts what came and what went.  More may have come before the names were read.
        made = max((stat.cversion + stat.num_children) // 2, _made(names))
        return Notices(stat.czxid, made, frozenset(names))

    def _named(self, seen: Notices, notices: Notices) -> Named | None:
        """Returns what the new notices name; None if some were deleted before they were read.

        Whoever writes a notice deletes the old ones by its own clock, which may be wrong.
        """
        if notices.made > _accounted(seen, notices):
            return None
        paths = [f"{layout.CONFIG_CHANGES}/{name}" for name in sorted(notices.names - seen.names)]
        named = Named(set(), broker=False)
        for path, node in zip(paths, self._tree.get_all(paths), strict=True):
            if node is None:
                return None
            try:
                named = self._with(named, layout.decode_config_change(node[0]))
            except (BadZnodeError, Refused) as bad:
                _LOG.error("%s can't be read: %s", path, bad)
        return named

    def _with(self, named: Named, entity: str) -> Named:
        """Adds whom a notice names, as `topics/flights`; others than topics and brokers are left alone."""
        kind, _, name = entity.partition("/")
        if kind == layout.TOPIC_CONFIGS:
            named.topics.add(checked(name))
        elif kind == layout.BROKER_CONFIGS and name in self._owners:
            return named._replace(broker=True)
        return named

    def _all_topics(self) -> list[TopicName]:
        return list(map(TopicName, children_if_there(self._tree, layout.TOPICS)))

    def _topics(self, named: Iterable[TopicName]) -> dict[TopicName, Mapping[str, str]]:
        """Returns what is set on topics, but for those that are gone, or whose configuration can't be read."""
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
                _LOG.error("the configuration of topic %s stays as it was, as %s can't be read: %s", name, path, bad)
        found = self._tree.get_all([layout.topic(name) for name in bare])
        topics.update((name, {}) for name, node in zip(bare, found, strict=True) if node is not None)
        return topics


class WatchedConfigs:
    """Puts in force what a watch finds, in slices, until it is stopped.  On the loop's thread."""

    def __init__(self, shell: Shell, broker: Broker, watch: ConfigWatch) -> None:
        self._shell = shell
        self._broker = broker
        self._watch = watch
        self._is_stopped = False
        watch.start(self._changed)

    def stop(self) -> None:
        self._watch.stop()
        self._is_stopped = True

    def _changed(self) -> None:
        """Called in any thread."""
        if not self._is_stopped:
            self._shell.loop.call_soon_threadsafe(self._read)

    def _read(self) -> None:
        self._shell.in_order(self._watch.read, self._was_read)

    def _was_read(self, done: Future[Altered | None]) -> None:
        failure = done.exception()
        if isinstance(failure, AssertionError):
            raise failure
        if failure is not None:
            _LOG.error("changed configurations could not be read here", exc_info=failure)
        found = None if failure is not None else done.result()
        if found is None:
            self._shell.loop.call_later(READ_AGAIN_SECONDS, self._read)
        else:
            self._shell.add_slices(put_news_in_force(self._broker, found, self._shell.now()))


def _made(names: list[str]) -> int:
    """Returns how many notices were made at least, by the number of the last."""
    for name in reversed(names):
        with suppress(ValueError):
            return layout.sequence_of(name, layout.CONFIG_CHANGE_PREFIX) + 1
    return 0


def _accounted(seen: Notices, notices: Notices) -> int:
    """Returns how many notices were ever made as far as they were seen."""
    return seen.made + len(notices.names - seen.names)
