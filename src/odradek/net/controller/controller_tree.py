"""Controller's access to the metadata tree: executes its steps and notifies it of changes.

Everything that is read is watched from then on. net/controller/controller_changes.py defines how changes are made and
rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, singledispatchmethod
from typing import TypeVar

from odradek.base.units import BrokerId, TimestampMs, TopicName, TopicPartition
from odradek.coordination import id_claims
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import BadZnodeError, readable
from odradek.coordination.partition_states import decoded
from odradek.coordination.tree import (
    BadVersion,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    Tree,
    Unavailable,
    Watch,
    WatchEvent,
    children_if_there,
    ensure_paths,
)
from odradek.core.controller import events
from odradek.core.controller.controller_context import LiveBroker
from odradek.core.controller.controller_steps import (
    AssignTopicIds,
    DeleteNotices,
    Deposed,
    Elect,
    Notices,
    ReadBrokers,
    ReadDeletions,
    ReadFailedDirectories,
    ReadIsrChanges,
    ReadMayBeUnclean,
    ReadPreferredElections,
    ReadStates,
    ReadTopicNames,
    ReadTopics,
    RemoveTopics,
    Step,
    Steps,
    WriteStates,
)
from odradek.core.kernel.cluster_view import BrokerInfo, LeaderAndIsr
from odradek.net.controller.controller_changes import ControllerChanges, with_folders

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _EventWatch:
    """Watch that emits an event; equal for equal events, so that reading twice notifies only once."""

    put_event: Callable[[events.Event], None]
    event: events.Event

    def __call__(self, _: WatchEvent) -> None:
        self.put_event(self.event)


class ControllerTree:
    """Metadata tree access of one broker's controller.

    It blocks, and only one thread calls it. `put_event` is called on the thread of the tree's watches.
    """

    def __init__(
        self,
        tree: Tree,
        broker: BrokerId,
        now: Callable[[], TimestampMs],
        may_be_unclean: Callable[[Mapping[str, str]], bool],
        put_event: Callable[[events.Event], None],
    ) -> None:
        """Create tree access; `may_be_unclean` maps a topic's configs to unclean.leader.election.enable."""
        self._tree = tree
        self._broker = broker
        self._now = now
        self._may_be_unclean = may_be_unclean
        self._put_event = put_event
        self._changes = ControllerChanges(tree)
        # Kept per session: a lone broker is elected by its registration, and an epoch remembered from an earlier
        # session would be fenced forever.
        self._epoch: int | None = None  # Epoch of the last election of this broker in this session.
        self._session = 0

    def run(self, steps: Steps, await_tree: Callable[[Unavailable], None]) -> None:
        """Execute all steps; after `await_tree` returns, repeat a step that could not reach the tree.

        It is unknown whether such a step took effect, so each step may be executed twice. If `await_tree` raises, the
        exception propagates.
        """
        try:
            step = next(steps)
            while True:
                try:
                    self.execute(step)
                except (Deposed, SessionExpired):
                    step = steps.throw(Deposed())
                except Unavailable as failure:
                    await_tree(failure)
                else:
                    step = next(steps)
        except StopIteration:
            pass

    @singledispatchmethod
    def execute(self, step: Step[object]) -> None:
        """Set the step's result.  Raises Deposed, and the tree's exceptions if it cannot be reached."""
        raise AssertionError(f"{type(step).__name__} is not a step")

    # Election.

    @execute.register
    def _(self, step: Elect) -> None:
        watch = self._watch(events.ControllerChanged())
        ensure_paths(self._tree, [layout.CONTROLLER_EPOCH])
        try:
            while (stat := self._tree.exists(layout.CONTROLLER, watch)) is None:
                self._try_elect()
            # Reads the epoch if the response to the election was lost.
            step.result = self._elected_epoch() if stat.ephemeral_owner == self._tree.session_id else None
        except BadZnodeError as bad:
            self._tree.get(layout.CONTROLLER_EPOCH, watch)
            _LOG.error(
                "failed to read %s; no broker can become the controller until it is readable: %s",
                layout.CONTROLLER_EPOCH,
                bad,
            )
            step.result = None

    def _elected_epoch(self) -> int:
        if self._epoch is None or self._session != self._tree.session_id:
            self._session = self._tree.session_id
            data, stat = self._tree.get(layout.CONTROLLER_EPOCH)
            self._epoch = layout.decode_controller_epoch(data)
            self._changes.begin_epoch(self._epoch, stat.version)
        return self._epoch

    def _try_elect(self) -> None:
        self._epoch = None
        election = id_claims.controller(self._tree, self._broker, self._now())
        try:
            self._tree.multi(election)
        except MultiFailed as failed:
            if not isinstance(failed.error, NodeExists | BadVersion):  # Another broker was faster.
                raise failed.error from failed

    # Reading.

    def _watch(self, event: events.Event) -> Watch:
        return _EventWatch(self._put_event, event)

    @execute.register
    def _(self, step: ReadBrokers) -> None:
        watch = self._watch(events.BrokersChanged())
        brokers: dict[BrokerId, LiveBroker] = {}
        for name in self._tree.children(layout.BROKER_IDS, watch):
            path = f"{layout.BROKER_IDS}/{name}"
            with suppress(NoNode):
                data, stat = self._tree.get(path, watch)
                found = readable(path, partial(_decode_broker, name), data)
                if found is not None:
                    brokers[found.id] = LiveBroker(found, stat.czxid)
        step.result = brokers

    @execute.register
    def _(self, step: ReadTopicNames) -> None:
        step.result = self._topic_names()

    def _topic_names(self) -> list[TopicName]:
        return list(map(TopicName, self._tree.children(layout.TOPICS, self._watch(events.TopicsChanged()))))

    @execute.register
    def _(self, step: ReadTopics) -> None:
        names = self._topic_names() if step.names is None else step.names
        paths = {layout.topic(name): name for name in names}
        found = self._tree.get_all(list(paths), lambda path: self._watch(events.TopicChanged(paths[path])))
        topics = {
            name: readable(path, layout.decode_topic, node[0])
            for (path, name), node in zip(paths.items(), found, strict=True)
            if node is not None
        }
        step.result = {name: topic for name, topic in topics.items() if topic is not None}

    @execute.register
    def _(self, step: ReadStates) -> None:
        states: dict[TopicPartition, LeaderAndIsr] = {}
        partitions = list(with_folders(self._tree, step.partitions))
        paths = [layout.partition_state(*partition) for partition in partitions]
        for partition, path, node in zip(partitions, paths, self._tree.get_all(paths), strict=True):
            if node is not None:
                found = readable(path, partial(decoded, version=node[1].version), node[0])
                if found is not None:
                    states[partition] = found
        step.result = states

    @execute.register
    def _(self, step: ReadMayBeUnclean) -> None:
        paths = {name: layout.config(layout.TOPIC_CONFIGS, name) for name in step.names}
        configs = {name: self._read(path, layout.decode_config) or {} for name, path in paths.items()}
        step.result = {name: self._may_be_unclean(config) for name, config in configs.items()}

    @execute.register
    def _(self, step: ReadDeletions) -> None:
        names = self._tree.children(layout.DELETE_TOPICS, self._watch(events.DeletionsChanged()))
        step.result = list(map(TopicName, names))

    @execute.register
    def _(self, step: ReadIsrChanges) -> None:
        found = self._notices(layout.ISR_CHANGES, layout.decode_partitions, events.IsrsChanged())
        step.result = Notices(
            list(found), partitions=[partition for partitions in found.values() for partition in partitions or ()]
        )

    @execute.register
    def _(self, step: ReadFailedDirectories) -> None:
        found = self._notices(layout.LOG_DIR_EVENTS, layout.decode_log_dir_event, events.DirectoriesFailed())
        step.result = Notices(list(found), brokers=[broker for broker in found.values() if broker is not None])

    @execute.register
    def _(self, step: ReadPreferredElections) -> None:
        path, watch = layout.PREFERRED_REPLICA_ELECTION, self._watch(events.PreferredElectionsRequested())
        is_requested = self._tree.exists(path, watch) is not None
        partitions = self._read(path, layout.decode_partitions) or ()
        step.result = Notices([path] if is_requested else [], partitions=partitions)

    def _notices(self, folder: str, decode: Callable[[bytes], T], event: events.Event) -> dict[str, T | None]:
        """Return the contents of notifications by path, in order; None for an unreadable one."""
        names = sorted(self._tree.children(folder, self._watch(event)))
        return {f"{folder}/{name}": self._read(f"{folder}/{name}", decode) for name in names}

    def _read(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        """Return the content of a znode, or None if it does not exist or is unreadable."""
        try:
            data, _ = self._tree.get(path)
        except NoNode:
            return None
        return readable(path, decode, data)

    # Changes of the tree.

    @execute.register
    def _(self, step: AssignTopicIds) -> None:
        step.result = self._changes.assign_topic_ids(step.ids)

    @execute.register
    def _(self, step: WriteStates) -> None:
        step.result = self._changes.write(step.states, creates=step.creates)

    @execute.register
    def _(self, step: RemoveTopics) -> None:
        for name in step.names:
            self._changes.remove_topic(name)
        step.result = None

    @execute.register
    def _(self, step: DeleteNotices) -> None:
        paths = step.paths
        if paths is None:
            folders = (layout.ISR_CHANGES, layout.LOG_DIR_EVENTS)
            paths = [f"{folder}/{name}" for folder in folders for name in children_if_there(self._tree, folder)]
        self._changes.delete(paths)
        step.result = None


def _decode_broker(name: str, data: bytes) -> BrokerInfo:
    return layout.decode_broker(layout.broker_id(name), data).broker
