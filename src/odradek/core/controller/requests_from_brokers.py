"""Requests of brokers to the controller: controlled shutdown and ISR changes."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_EPOCH, BrokerId, TopicPartition
from odradek.core.controller import partition_leader_election as elections
from odradek.core.controller.broker_request_batch import RequestBatch
from odradek.core.controller.controller_context import ControllerContext
from odradek.core.controller.controller_steps import Finding, Steps, WriteStates
from odradek.core.controller.events import AlteredPartition, AlterPartitions, BrokerEpochs, ShutDown
from odradek.core.controller.leaders import Leaders
from odradek.core.kernel.cluster_view import RECOVERED, RECOVERING, LeaderAndIsr


def shut_down(event: ShutDown, context: ControllerContext, leaders: Leaders, batch: RequestBatch) -> Steps:
    """Move a broker's leaderships to other brokers, remove it from ISRs, and stop its followers."""
    if not _is_from_live_broker(event, context):
        return
    broker = event.broker
    context.shutting_down.add(broker)
    held = context.existing(context.partitions_on(broker))
    shared = [partition for partition in held if len(context.replicas(partition)) > 1]

    def hand_over(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
        if state.leader != broker:
            return elections.without(state, {broker})
        replicas, online = context.replicas(partition), context.online(partition)
        elected = elections.for_controlled_shutdown(state, replicas, online, context.shutting_down)
        return state if elected is None else elected.state

    yield from leaders.elect(shared, hand_over)
    states = {partition: context.states[partition] for partition in shared if partition in context.states}
    for partition, state in states.items():
        if state.leader != broker:
            batch.stop(broker, partition)
    led = (partition for partition, state in states.items() if state.leader == broker)
    event.answer = [partition for partition in led if not _are_others_stopping(partition, broker, context)]


def _are_others_stopping(partition: TopicPartition, broker: BrokerId, context: ControllerContext) -> bool:
    """Return whether all other brokers with the partition are shutting down, too.

    Waiting for one of them to become leader would be futile.
    """
    others = context.brokers.keys() & {*context.replicas(partition)} - {broker}
    return bool(others) and others <= context.shutting_down


def alter_partitions(
    event: AlterPartitions, context: ControllerContext, leaders: Leaders, batch: RequestBatch
) -> Steps:
    """Write ISRs proposed by leaders, each if it follows from the current state."""
    if not _is_from_registered_broker(event, context):
        return
    answers: dict[TopicPartition, AlteredPartition] = {}
    accepted: dict[TopicPartition, LeaderAndIsr] = {}
    for partition, proposed in event.proposals.items():
        state = context.states.get(partition)
        if state is None or partition.topic in context.deleting:
            answers[partition] = AlteredPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif state.leader == event.broker and _is_same(proposed, state):
            answers[partition] = AlteredPartition(ErrorCode.NONE, state)  # The previous answer was lost.
        elif error := _refusal(proposed, state, partition, event.broker, context):
            answers[partition] = AlteredPartition(error)
        elif _has_restarted(event.isr_epochs.get(partition, {}), proposed, context):
            answers[partition] = AlteredPartition(ErrorCode.INELIGIBLE_REPLICA)
        else:
            accepted[partition] = state._replace(isr=proposed.isr, recovery=proposed.recovery)
    if accepted:
        answers |= yield from _write(accepted, context, leaders, batch)
    event.answer = {partition: answers[partition] for partition in event.proposals}


def _write(
    accepted: Mapping[TopicPartition, LeaderAndIsr], context: ControllerContext, leaders: Leaders, batch: RequestBatch
) -> Finding[dict[TopicPartition, AlteredPartition]]:
    write = WriteStates(accepted)
    yield write
    assert len(write.result.states) + len(write.result.stale) == len(accepted), "each state is written or stale"
    context.put_states(write.result.states)
    stale = write.result.stale
    yield from leaders.read(stale)
    yield from leaders.settle(stale)
    batch.update_metadata(accepted)
    answers: dict[TopicPartition, AlteredPartition] = {}
    for partition, proposed in accepted.items():
        state = context.states.get(partition)
        if state is not None and (partition in write.result.states or _is_same(proposed, state)):
            answers[partition] = AlteredPartition(ErrorCode.NONE, state)
        else:
            answers[partition] = AlteredPartition(ErrorCode.INVALID_UPDATE_VERSION)
    return answers


def _is_same(proposed: LeaderAndIsr, state: LeaderAndIsr) -> bool:
    """Return whether the proposed state is already written, by a request or write without an answer."""
    has = (state.leader_epoch, state.isr, state.recovery)
    return proposed.partition_epoch <= state.partition_epoch and has == (
        proposed.leader_epoch,
        proposed.isr,
        proposed.recovery,
    )


def _refusal(
    proposed: LeaderAndIsr, state: LeaderAndIsr, partition: TopicPartition, broker: BrokerId, context: ControllerContext
) -> ErrorCode:
    """Return the reason why a leader may not have that state, or NONE."""
    if proposed.partition_epoch > state.partition_epoch or proposed.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # The leader knows a newer epoch than this controller.
    if proposed.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if proposed.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = set(proposed.isr)
    is_duplicated = len(isr) < len(proposed.isr)
    if state.leader != broker or broker not in isr or is_duplicated or not isr <= {*context.replicas(partition)}:
        return ErrorCode.INVALID_REQUEST
    # A leader that may lack records recovers its log before others follow it, and does so once (KIP-704).
    if proposed.recovery == RECOVERING and (state.recovery == RECOVERED or len(isr) > 1):
        return ErrorCode.INVALID_REQUEST
    if not isr <= context.online(partition) - context.shutting_down | {broker}:
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _has_restarted(known: BrokerEpochs, proposed: LeaderAndIsr, context: ControllerContext) -> bool:
    """Return whether an ISR member has restarted since the leader saw it catch up (KIP-903)."""
    assert {*proposed.isr} <= context.brokers.keys(), "only live brokers are eligible for an ISR"
    return any(known.get(member, NO_EPOCH) not in (NO_EPOCH, context.brokers[member].epoch) for member in proposed.isr)


def _is_from_live_broker(event: ShutDown, context: ControllerContext) -> bool:
    """Return whether the broker that asks is registered; set the error if it is not.

    As in Apache Kafka, an epoch above the known one belongs to a registration of which the controller learns next,
    and -1 is sent by brokers that do not know theirs.
    """
    live = context.brokers.get(event.broker)
    if live is None:
        event.error = ErrorCode.BROKER_NOT_AVAILABLE if event.broker_epoch == NO_EPOCH else ErrorCode.STALE_BROKER_EPOCH
    elif NO_EPOCH != event.broker_epoch < live.epoch:
        event.error = ErrorCode.STALE_BROKER_EPOCH
    return not event.error


def _is_from_registered_broker(event: AlterPartitions, context: ControllerContext) -> bool:
    """Return whether the request carries exactly the epoch of the broker's registration; set the error if not.

    Leaders of every version that sends AlterPartition know their epoch.  One that has just registered again retries
    until the controller has learned of it.
    """
    live = context.brokers.get(event.broker)
    if live is None or live.epoch != event.broker_epoch:
        event.error = ErrorCode.STALE_BROKER_EPOCH
    return not event.error
