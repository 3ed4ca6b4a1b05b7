"""Cluster membership: applies controller requests, runs the controller, and serves other brokers.

the tree ──> ControllerThread ──> this broker ──┐
                            └──> channels       ├──> applied in order: overrides read first, then in slices
LeaderAndIsr, UpdateMetadata, StopReplica ──────┘
AlterPartition, ControlledShutdown ──> ControllerThread ──> answered
markers, automatically created topics ──> channels to their destination brokers
ISRs of partitions led here ──> the controller, or the tree

A cluster may consist of this broker alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.base.errors import Refused
from odradek.base.units import BrokerId, TimestampMs
from odradek.coordination.reconnecting_tree import ReconnectingTree
from odradek.coordination.tree import TreeFailed
from odradek.core.broker.broker import Broker
from odradek.core.broker.controller_queries import ControllerQueries
from odradek.core.broker.effects import Change, Changed, CreateTopics
from odradek.core.broker.replicas import Errors
from odradek.core.broker.topic_purgatory import TopicPurgatory
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest
from odradek.core.controller.controller import Controller
from odradek.core.controller.controller_context import LiveBroker
from odradek.core.kernel.cluster_view import BrokerInfo
from odradek.net.cluster.config_watch import ConfigWatch
from odradek.net.cluster.controlled_shutdown_sender import Answer, controlled_shutdown
from odradek.net.cluster.controller_updates import ControllerUpdates, Shell
from odradek.net.cluster.delayed_deletions import DelayedDeletions
from odradek.net.cluster.tree_metadata import Metadata
from odradek.net.controller.controller_thread import ControllerThread

if TYPE_CHECKING:
    from odradek.net.cluster.isr_changes import IsrChanges  # A lone broker has no followers.
    from odradek.net.cluster.peer_connections import Peers  # A lone broker saves its time and memory.

log = logging.getLogger(__name__)

OwnQuery = events.ShutDown | events.AlterPartitions | events.ElectLeaders


class ClusterMember:
    """This broker's part in its cluster; on the loop's thread unless stated otherwise."""

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        tree: ReconnectingTree,
        metadata: Metadata,
        info: BrokerInfo,
        *,
        timeout_ms: int,
        configs: ConfigWatch,
        make_peers: Callable[[Shell, Broker, Callable[[events.Event], None]], Peers] | None,
    ) -> None:
        """Create a member that has not started yet.

        `timeout_ms` limits how long an earlier registration of this broker may remain. `make_peers` creates the
        connections to other brokers. Without it, the broker is alone and rejects requests that only brokers send.
        """
        self._shell = shell
        self._broker = broker
        self._tree = tree
        self._metadata = metadata
        self._info = info
        self._timeout_ms = timeout_ms
        self._configs = configs
        self._queries = ControllerQueries(broker.purgatory, metadata.allocate_producer_ids)
        if make_peers is not None:
            broker.controller_queries = self._queries
        self._awaited = TopicPurgatory(broker.view)
        self._storage = list(broker.storage)
        self._directories: tuple[int, int] | None = self._directories_now()  # None: the controller was not notified.
        self._is_closed = False
        self._pending_queries: dict[events.ControllerQuery[Any], Callable[[events.ControllerQuery[Any]], None]] = {}
        self._controller = Controller(
            broker.id,
            has_recovery=broker.protocol.has_leader_recovery,
            new_topic_id=broker.entropy.new_uuid if broker.protocol.has_topic_ids else None,
            imbalance_percentage=broker.configs.int("leader.imbalance.per.broker.percentage"),
        )
        self._thread = ControllerThread(
            self._controller,
            tree,
            broker.id,
            now=self._wall,
            may_be_unclean=self._may_be_unclean,
            send=self._send,
            answered=lambda event: self._on_loop(self._on_answered, event),
            failed=lambda error: self._on_loop(_raise, error),
            is_alone=make_peers is None,
            rebalance_seconds=None if make_peers is None else _rebalance_seconds(broker),
        )
        tree.on_renewed = self._on_renewed
        self._peers = None if make_peers is None else make_peers(shell, broker, self._thread.put_event)
        self._isr_changes = None if self._peers is None else self._make_isr_changes(self._peers)
        self._removals = DelayedDeletions(
            shell, metadata, self._unless_closed, lambda event: broker.on_event(event, shell.now())
        )
        self._updates = ControllerUpdates(shell, broker, metadata, self._unless_closed, self._on_updated)

    # Start and stop.

    @property
    def informed(self) -> asyncio.Future[None]:
        """Return a future that completes when the controller has sent the current state."""
        return self._updates.informed

    @property
    def unclean_elections(self) -> int:
        """Return the number of unclean leader elections since this broker became the controller."""
        return self._controller.context.unclean_elections

    def start(self) -> None:
        """Join the controller election and process the controller's requests."""
        self._thread.start()

    def _on_renewed(self) -> None:
        """Register again after the session has expired; called in a thread of the tree."""
        epoch = self._metadata.register_broker(self._info, self._wall, self._timeout_ms)
        log.warning("metadata tree session expired; registered broker %d again", self._broker.id)
        self._on_loop(self._on_registered, epoch)
        self._thread.put_event(events.ControllerChanged())
        self._configs.on_renewed()

    def _on_registered(self, epoch: int) -> None:
        self._broker.on_registered(epoch)
        self._updates.on_renewed()

    async def controlled_shutdown(self) -> None:
        """Move this broker's leaderships to other brokers, if there are any, before it stops."""
        await controlled_shutdown(self._broker, self._request_shutdown)

    def _request_shutdown(self, then: Callable[[Answer], None]) -> None:
        event = events.ShutDown(self._broker.id, self._broker.controlled.broker_epoch)
        controller = self._broker.view.controller
        if controller != self._broker.id:
            self._others.requests.shut_down(controller, event, then)
            return

        def on_answered(_: events.ControllerQuery[Any]) -> None:
            then(Refused(event.error, "this broker is no longer the controller") if event.error else event.answer or ())

        self._query_own_controller(event, on_answered)

    def _query_own_controller(self, event: OwnQuery, then: Callable[[events.ControllerQuery[Any]], None]) -> None:
        """Send a request to our own controller, without a socket."""
        self._pending_queries[event] = then
        self._thread.put_event(event)

    def _make_isr_changes(self, peers: Peers) -> IsrChanges:
        from odradek.net.cluster.isr_changes import IsrChanges

        senders = peers.requests.alter_partitions, self._query_own_controller
        return IsrChanges(self._shell, self._broker, self._tree, self._unless_closed, *senders)

    def close(self) -> None:
        """Stop sending and receiving; the tree stays open."""
        self._is_closed = True
        self._thread.close()
        if self._peers is not None:
            self._peers.close()

    @property
    def _others(self) -> Peers:
        assert self._peers is not None, "a single broker is its own controller"
        return self._peers

    def _on_updated(self) -> None:
        if self._peers is not None:
            self._peers.close_stale()

    def _wall(self) -> TimestampMs:
        return self._shell.now().wall

    def _may_be_unclean(self, overrides: Mapping[str, str]) -> bool:
        return self._broker.configs.for_topic(overrides).unclean_leader_election_enable

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        """Call on the loop from another thread, unless the member is closed."""
        if not self._is_closed:
            self._shell.loop.call_soon_threadsafe(self._unless_closed, call, *arguments)

    def _unless_closed(self, call: Callable[..., None], *arguments: object) -> None:
        if not self._is_closed:
            call(*arguments)
            self._shell.settle()

    # Calls from the shell.

    def start_requested_work(self) -> None:
        """Start the work that the broker requests; called after every event, mostly with nothing to do."""
        if self._is_closed:
            return
        if self._peers is not None:
            self._take_queries()
            self._peers.requests.send_queued_requests()
            self._peers.fetchers.send_due_requests()
        if self._isr_changes is not None:
            self._isr_changes.send_proposals()
        if self._broker.unclean_enabled:
            self._start_unclean_elections()
        if self._awaited.has_any:
            for changed in self._awaited.take_completed(self._shell.now().steady):
                self._removals.add(changed)
        self._report_directories()
        self._updates.start_next()

    def _take_queries(self) -> None:
        """Take requests from other brokers; a lone broker receives none."""
        for update in self._queries.control_requests.take_queries():
            self._updates.add(update.query, update.complete)
        for request in self._queries.broker_requests.take_queries():
            assert isinstance(request.query, OwnQuery)
            self._query_own_controller(request.query, request.complete)

    def forwards(self, change: Change) -> bool:
        """Forward a topic creation to the controller; return False if this broker applies the change.

        Changes that only the controller may make were rejected before if this broker is not the controller.
        """
        controller = self._broker.view.controller
        if not isinstance(change, CreateTopics) or controller == self._broker.id:
            return False
        self._others.requests.create_topics(controller, change, partial(self._on_forwarded, change))
        return True

    def _on_forwarded(self, change: CreateTopics, changed: Changed) -> None:
        self.changed(change, changed, any_id=True)
        self._shell.settle()

    def changed(self, change: Change, changed: Changed, *, any_id: bool = False) -> None:
        """Process the result of a change; its requester is answered once the change is visible here."""
        if changed.topics:
            self._awaited.add(change, changed, self._shell.now().steady, any_id=any_id)
        else:
            self._broker.on_event(changed, self._shell.now())

    def _start_unclean_elections(self) -> None:
        """Start elections that a configuration change has enabled, if this broker is the controller."""
        enabled, self._broker.unclean_enabled = self._broker.unclean_enabled, {}
        for name in enabled:
            self._thread.put_event(events.UncleanElectionEnabled(name))

    def _report_directories(self) -> None:
        """Notify the controller when a directory or log has failed, or when replicas have returned.

        The controller then asks which replicas are available.
        """
        now = self._directories_now()
        if now != self._directories:
            work = partial(self._metadata.propagate_log_dir_event, self._broker.id)
            self._shell.in_order(work, self._on_directories_reported)
        self._directories = now

    def _directories_now(self) -> tuple[int, int]:
        """Return the count of failed directories and of replica changes; both only grow."""
        failed = 0
        for directory in self._storage:
            if directory.failure is not None:
                failed += 1
        return failed, self._broker.replicas.changes

    def _on_directories_reported(self, done: Future[None]) -> None:
        failure = done.exception()
        if isinstance(failure, TreeFailed):
            log.warning("failed to notify the controller of log directory failures (will retry): %s", failure)
            self._directories = None
        elif failure is not None:
            raise failure

    # Calls from the controller's thread.

    def _send(self, requests: Sequence[ControlRequest]) -> None:
        """Accept the controller's requests and their destinations, on its thread."""
        self._on_loop(self._on_sent, requests, dict(self._controller.context.brokers))

    def _on_sent(self, requests: Sequence[ControlRequest], alive: Mapping[BrokerId, LiveBroker]) -> None:
        if self._peers is not None:
            self._peers.retain(alive)
        for request in requests:
            if request.broker == self._broker.id:
                self._updates.add(request, partial(self._answer_controller, request))
            else:
                self._others.send(request, alive[request.broker])

    def _answer_controller(self, request: ControlRequest, answer: Errors | Refused) -> None:
        if isinstance(answer, Refused):
            log.info("ignored a request of this broker's controller: %s", answer)
        else:
            self._thread.put_event(events.Answered(request, answer))

    def _on_answered(self, event: events.ControllerQuery[Any]) -> None:
        then = self._pending_queries.pop(event, None)
        if then is not None:
            then(event)


def _rebalance_seconds(broker: Broker) -> int | None:
    if not broker.configs.bool("auto.leader.rebalance.enable"):
        return None
    return broker.configs.int("leader.imbalance.check.interval.seconds")


def _raise(error: Exception) -> None:
    raise error
