"""Propagation of ISRs proposed by leaders here: both kinds of Kafka's AlterPartitionManager.

    AlterPartitionManager ─┬─> AlterPartition, to the controller            since 2.7-IV2 (KIP-497)
                           └─> the partition's state in the tree ──> /isr_change_notification, some seconds later

inter.broker.protocol.version selects the kind. Only one request, or one change of the tree, is under way at a time;
proposals made during that time go into the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import TypeAlias

from odradek.api.cluster.alter_partition_requests import AlterPartitionResult, from_event, to_event
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicPartition
from odradek.coordination.isr_updates import notify, write
from odradek.coordination.tree import Tree, TreeFailed
from odradek.core.broker.broker import Broker
from odradek.core.controller.events import AlterPartitions
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.partition.alter_partition_manager import ProposedIsr
from odradek.core.partition.isr_notifications import IsrNotifications
from odradek.net.cluster.controller_updates import Shell

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0  # Delay before another write to a tree that could not be reached.
NAMED_MAX = 10  # Partitions in one log line.

Then: TypeAlias = Callable[[Sequence[AlterPartitionResult]], None]
SendToController: TypeAlias = Callable[[BrokerId, Sequence[ProposedIsr], Then], None]
QueryOwnController: TypeAlias = Callable[[AlterPartitions, Callable[[object], None]], None]
Later: TypeAlias = Callable[..., None]


class IsrChanges:
    """ISR proposals of one broker; on the loop's thread."""

    def __init__(  # noqa: PLR0917
        self,
        shell: Shell,
        broker: Broker,
        tree: Tree,
        unless_closed: Later,
        send_to_controller: SendToController,
        query_own_controller: QueryOwnController,
    ) -> None:
        """Create a sender of proposals.

        `send_to_controller` sends to another broker, `query_own_controller` to our own controller; neither responds
        within the call. `unless_closed` calls its first argument with the other arguments, unless the broker has
        stopped.
        """
        self._shell = shell
        self._broker = broker
        self._manager = broker.alter_partition
        self._send_to_controller = send_to_controller
        self._query_own_controller = query_own_controller
        self._in_tree = (
            _TreeIsrWriter(shell, broker, tree, unless_closed) if broker.protocol.alter_partition is None else None
        )
        self._is_under_way = False

    def send_proposals(self) -> None:
        """Send proposals of leaders; called after every event, mostly with nothing to do."""
        while self._manager.has_proposals and not self._is_under_way:
            proposed = self._manager.take_proposals()
            if proposed:
                self._is_under_way = True
                (self._send if self._in_tree is None else self._in_tree.write)(
                    proposed, partial(self._on_ended, proposed)
                )
        if self._in_tree is not None:
            self._in_tree.notify_controller_if_due()

    def _send(self, proposed: Sequence[ProposedIsr], then: Then) -> None:
        """Send the proposals to the current controller."""
        controller, own_id = self._broker.view.controller, self._broker.id
        if controller != own_id:
            self._send_to_controller(controller, proposed, then)
            return
        event = to_event(proposed, own_id, self._broker.controlled.broker_epoch)
        self._query_own_controller(event, lambda _: then(from_event(proposed, event)))

    def _on_ended(self, proposed: Sequence[ProposedIsr], answers: Sequence[AlterPartitionResult]) -> None:
        self._is_under_way = False
        now = self._shell.now()
        for proposed_isr, answer in zip(proposed, answers, strict=True):
            self._manager.on_proposal_answered(proposed_isr, answer.error, answer.state, now)
        _log_results(proposed, answers)
        self._shell.settle()


class _TreeIsrWriter:
    """Writes of leaders to the tree, in its thread, and the notifications for the controller."""

    def __init__(self, shell: Shell, broker: Broker, tree: Tree, unless_closed: Later) -> None:
        self._shell = shell
        self._tree = tree
        self._unless_closed = unless_closed
        self._notifications = IsrNotifications(broker.timers, shell.now())

    def write(self, proposed: Sequence[ProposedIsr], then: Then) -> None:
        states = {proposed_isr.leading.name: proposed_isr.proposal for proposed_isr in proposed}
        self._shell.in_order(partial(write, self._tree, states), partial(self._on_written, list(states), then))

    def _on_written(
        self, partitions: Sequence[TopicPartition], then: Then, done: Future[Mapping[TopicPartition, LeaderAndIsr]]
    ) -> None:
        failure = done.exception()
        if isinstance(failure, TreeFailed):
            log.warning("failed to update the ISR of %d partitions (will retry): %s", len(partitions), failure)
            # Unknown result: some or all of the states may be written.
            unknown = [AlterPartitionResult(ErrorCode.NETWORK_EXCEPTION)] * len(partitions)
            self._shell.loop.call_later(RETRY_SECONDS, self._unless_closed, then, unknown)
            return
        if failure is not None:
            raise failure
        written = done.result()
        if written:
            self._notifications.changed(written, self._shell.now())
        stale = AlterPartitionResult(ErrorCode.INVALID_UPDATE_VERSION)
        then(
            [
                AlterPartitionResult(ErrorCode.NONE, written[partition]) if partition in written else stale
                for partition in partitions
            ]
        )

    def notify_controller_if_due(self) -> None:
        """Notify the controller if a notification is due."""
        if self._notifications.are_due:
            partitions = self._notifications.take_changed_partitions(self._shell.now())
            self._shell.in_order(partial(notify, self._tree, partitions), partial(self._on_notified, partitions))

    def _on_notified(self, partitions: Sequence[TopicPartition], done: Future[None]) -> None:
        failure = done.exception()
        if isinstance(failure, TreeFailed):
            log.warning("failed to notify the controller of ISR changes (will retry): %s", failure)
            self._notifications.put_back(partitions, self._shell.now())
            self._shell.settle()
        elif failure is not None:
            raise failure


def _log_results(proposed: Sequence[ProposedIsr], answers: Sequence[AlterPartitionResult]) -> None:
    """Log the changed ISRs and the proposals for outdated states."""
    changed = [
        (proposed_isr, answer.state)
        for proposed_isr, answer in zip(proposed, answers, strict=True)
        if answer.state is not None
    ]
    if changed:
        named = [f"{proposed_isr.leading.name} {[*state.isr]}" for proposed_isr, state in islice(changed, NAMED_MAX)]
        more = f" and {len(changed) - NAMED_MAX} more" if len(changed) > NAMED_MAX else ""
        log.info("ISR updated: %s%s", ", ".join(named), more)
    for proposed_isr, answer in zip(proposed, answers, strict=True):
        if answer.state is None:
            log.debug(
                "failed to update the ISR of %s to %s: %s",
                proposed_isr.leading.name,
                proposed_isr.proposal.isr,
                answer.error,
            )
