"""Replicas on this broker: the only code that opens, promotes, demotes, stops or takes them offline.

The controller assigns each one its role (`become`, `stop`).  Long operations yield after each log.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.broker.coordinators import Coordinators
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.core.controller.broker_request_batch import AssignedState, BecomeLeaderOrFollower, StopReplicas
from odradek.core.coordinators.durable import NextSteps
from odradek.core.disks.flushes import Flushes
from odradek.core.kernel.cluster_view import ClusterView, PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.partition.alter_partition_manager import AlterPartitionManager
from odradek.core.partition.damaged_replicas import DamagedReplicas
from odradek.core.partition.leaders_without_disk import UnableLeaders
from odradek.core.partition.partition import Partition
from odradek.core.partition.storage import Storage, log_config
from odradek.core.replication.replica_fetcher_manager import ReplicaFetcherManager
from odradek.log.directory.directory import LogDirectory
from odradek.log.files.disk import DiskFailed
from odradek.log.log.damage_cut import DamageCut
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log

_LOG = logging.getLogger(__name__)

Errors = dict[TopicPartition, ErrorCode]  # The partitions for which it failed.


class Replicas:
    """Replicas of one broker, and the only writer of `partitions`."""

    def __init__(
        self,
        broker_id: BrokerId,
        storage: Storage,
        partitions: dict[TopicPartition, Partition],
        *,
        purgatory: Purgatory,
        steps: NextSteps,
        flushes: Flushes,
        coordinators: Coordinators,
        alter_partition: AlterPartitionManager,
        fetchers: ReplicaFetcherManager,
        may_hand_over: bool,
    ) -> None:
        """Create the replicas over the parts they use.

        `may_hand_over`: every controller of the cluster handles offline replicas and their return (Kafka 1.0).
        """
        self._id = broker_id
        self._storage = storage
        self._partitions = partitions
        self._purgatory = purgatory
        self._steps = steps
        self._flushes = flushes
        self._coordinators = coordinators
        self._alter_partition = alter_partition
        self._fetchers = fetchers
        self._may_hand_over = may_hand_over
        self._unable = UnableLeaders(
            storage, partitions, alter_partition, on_leadership_lost=self._on_leadership_lost, forget=self._remove
        )
        self._damaged = DamagedReplicas(
            broker_id, storage, partitions, alter_partition, on_offline=self._on_offline, forget=self._remove
        )
        # Logs that failed to open with too many open files or a full disk, retried once a second.
        self._unopened: dict[TopicPartition, Uuid] = {}  # With the topic's id.
        self._reopened_count = 0  # The number that opened later.

    @property
    def changes(self) -> int:
        """Number of replicas that went offline or returned; the controller must be notified of each."""
        return self._reopened_count + self._unable.changes + self._damaged.changes

    # Controller requests.

    def become(
        self, request: BecomeLeaderOrFollower, configs: Mapping[TopicName, TopicConfigs], now: Moment
    ) -> Generator[None, None, Errors]:
        """Apply LeaderAndIsr; `configs` belong to its topics.  Yield after each replica, return failures.

        A state that is not newer than the known one fails with STALE_CONTROLLER_EPOCH and changes nothing, as in Apache
        Kafka.  Coordinators start after all other partitions have leaders: markers that finish interrupted transactions
        may go to any partition.
        """
        errors: Errors = {}
        for name, assigned in request.partitions.items():
            topic_id = request.topic_ids.get(name.topic, ZERO_UUID)
            code = self._apply_state(name, topic_id, assigned, configs[name.topic], now)
            if code is not ErrorCode.NONE:
                errors[name] = code
            yield
        for name in request.partitions:
            partition = self._partitions.get(name)
            if partition is not None and name not in errors and self._coordinators.has_state_in(name.topic):
                self._coordinators.adopt(partition, now)
                yield
        return errors

    def _apply_state(
        self, name: TopicPartition, topic_id: Uuid, assigned: AssignedState, configs: TopicConfigs, now: Moment
    ) -> ErrorCode:
        state, present = assigned.state, self._partitions.get(name)
        if self._id not in assigned.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if present is not None and not present.is_online:
            self._damaged.answered(present)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if present is not None and topic_id != ZERO_UUID and present.log.topic_id not in (None, topic_id):
            # Deleted and recreated, as this broker learns only now.  The storage sets the old log aside.
            self._close(name, now)
            present = None
        if present is not None and state.leader_epoch <= present.info.leader_epoch:
            if state.leader_epoch == present.info.leader_epoch and self._assign_topic_id(present, topic_id):
                return ErrorCode.NONE
            return ErrorCode.STALE_CONTROLLER_EPOCH
        info = PartitionInfo.of(state, assigned.replicas)
        if present is None:
            log = self._log(name, topic_id, configs, now, is_new=assigned.is_new)
            present = self._partitions[name] = self._partition(name, log, info, configs)
        self._become(present, info, now)
        return ErrorCode.NONE if present.is_online else ErrorCode.KAFKA_STORAGE_ERROR

    def _partition(
        self, name: TopicPartition, log: Log | None, info: PartitionInfo, configs: TopicConfigs
    ) -> Partition:
        """Return a replica without a role.  Other replicas may lack records that are durable here."""
        has_others = len(info.replicas) > 1
        high_watermark = self._storage.high_watermark(name, log) if log is not None and has_others else None
        if log is not None:
            log.config = log_config(configs)  # It was opened at the start, and may have been altered since.
        return Partition(name, log, info, configs, self._alter_partition, high_watermark=high_watermark)

    def _assign_topic_id(self, partition: Partition, topic_id: Uuid) -> bool:
        """Assign the topic's id to a log without one; return False if there was nothing to assign.

        The controller assigns ids without an election, so the leader epoch is the known one.
        """
        if topic_id == ZERO_UUID or partition.log.topic_id is not None:
            return False
        try:
            self._storage.identify(partition.topic_partition, topic_id)
        except DiskFailed as failed:
            _LOG.warning(
                "failed to store the topic id of %s (will retry at the next start): %s",
                partition.topic_partition,
                failed,
            )
            return False
        return True

    def stop(self, request: StopReplicas, now: Moment) -> Generator[None, None, Errors]:
        """Close replicas, and delete their logs if requested.  Yield after each, return failures.

        A log without a replica is deleted, too: the broker may have missed the deletion.
        """
        errors: Errors = {}
        for name, epoch in request.partitions.items():
            code = self._stop(name, epoch, now, deletes=request.deletes)
            if code is not ErrorCode.NONE:
                errors[name] = code
            yield
        return errors

    def _stop(self, name: TopicPartition, epoch: LeaderEpoch, now: Moment, *, deletes: bool) -> ErrorCode:
        present = self._partitions.get(name)
        if present is not None and 0 <= epoch < present.info.leader_epoch:  # Below 0: whatever the epoch.
            return ErrorCode.FENCED_LEADER_EPOCH
        if present is not None and not present.is_online and not (deletes and self._is_intact_but_offline(present)):
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._close(name, now)
        if deletes:
            self._storage.delete(name, now.wall)
        return ErrorCode.NONE

    def _close(self, name: TopicPartition, now: Moment) -> None:
        if self._remove(name):
            self._purgatory.happened(name)
            self._steps.moved(name, now)

    def _become(self, partition: Partition, info: PartitionInfo, now: Moment) -> Partition:
        """Switch the partition to the role in its state, and wake requests that wait for its old role."""
        led = partition.leading
        name = partition.topic_partition
        self._fetchers.forget(name)
        if info.leader == self._id:
            partition.lead(info, now)
        else:
            partition.follow(info)
            if info.leader != NO_BROKER and partition.is_online:
                self._fetchers.follow(partition, now)
        leads = partition.leading is not None
        assert not leads or (info.leader == self._id and partition.is_online), "only the leader of a state leads"
        if led is not None and partition.leading is not led:
            self._on_leadership_lost(name, now)
        elif partition.leading is None:
            self._purgatory.happened(name)  # Consumers wait at followers, too (KIP-392), and name a leader epoch.
        return partition

    def _is_intact_but_offline(self, partition: Partition) -> bool:
        """Return True if the replica is offline though its log could be opened."""
        return self._unable.is_awaiting_room(partition) or self._damaged.is_awaiting(partition)

    def _on_offline(self, name: TopicPartition, now: Moment) -> None:
        self._fetchers.forget(name)
        self._on_leadership_lost(name, now)

    def _on_leadership_lost(self, name: TopicPartition, now: Moment) -> None:
        self._coordinators.resign(name)
        self._purgatory.happened(name)
        self._steps.moved(name, now)

    def _log(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        configs: TopicConfigs,
        now: Moment,
        *,
        is_new: bool,
        was_full: bool = False,
    ) -> Log | None:
        """Return the partition's log; None if its disk fails, and the partition exists but is offline.

        An open that failed for a full disk or a lack of descriptors is retried, and not logged again.
        """
        try:
            log = self._storage.open(name, topic_id, configs, now.wall, is_new=is_new)
            if log is not None and log.recovery_point < log.end_offset:
                # After a crash: records visible before must be visible from the first response on, and durable.
                flush_now(log, now.wall)
        except (DiskFailed, Refused) as failed:
            is_full = isinstance(failed, DiskFailed) and failed.is_full
            if not (was_full and is_full):
                _LOG.error("%s is offline: %s", name, failed)
            if is_full:
                self._unopened[name] = topic_id
            return None
        return log

    def try_again(self, now: Moment) -> Iterator[None]:
        """Retry logs that failed to open for lack of descriptors or of room.  Yields after each.

        Leaders that cannot write resign, or return when there is room.
        """
        if self._may_hand_over:
            yield from self._unable.hand_over(now)
            yield from self._unable.reinstate()
            yield from self._damaged.leave(now)
            yield from self._damaged.reinstate(now)
        unopened, self._unopened = self._unopened, {}
        for name, topic_id in unopened.items():
            self._reopen(name, topic_id, now)
            yield

    def take_cuts(self) -> list[DamageCut]:
        """Return the cuts of damaged logs that a thread is to run."""
        return self._damaged.take_cuts()

    def _reopen(self, name: TopicPartition, topic_id: Uuid, now: Moment) -> None:
        present = self._partitions.get(name)
        if present is None or present.is_online:
            return
        log = self._log(name, topic_id, present.configs, now, is_new=True, was_full=True)  # It was searched for before.
        if log is not None:
            assert present.leading is None, "an offline replica does not lead"
            partition = self._partition(name, log, present.info, present.configs)
            self._partitions[name] = self._become(partition, present.info, now)
            self._coordinators.adopt(partition, now)
            self._purgatory.happened(name)
            self._reopened_count += 1

    def _remove(self, name: TopicPartition) -> bool:
        """Remove a partition; return False if it is not here."""
        partition = self._partitions.pop(name, None)
        if partition is None:
            return False
        self._fetchers.forget(name)
        partition.close()  # A wait for a write to it fails.
        self._flushes.forget(name)
        self._coordinators.resign(name)
        return True

    def take_broken_offline(self, now: Moment) -> Iterator[None]:
        """Take broken data directories offline with their partitions.  Yields after each.

        Raises NoDirectory when the last one has failed.
        """
        for directory in [one for one in self._storage if one.is_found_broken]:
            self._take_offline(directory, now)
            yield

    def _take_offline(self, directory: LogDirectory, now: Moment) -> None:
        names = directory.fail()
        text = "log directory %s is offline until the next start, with %d partitions: %s"
        _LOG.error(text, directory.path, len(names), directory.failure)
        self._storage.check_any_online()
        for name in names:
            partition = self._partitions.get(name)
            if partition is None or not partition.is_online:
                continue
            partition.take_offline()
            self._fetchers.forget(name)
            self._on_leadership_lost(name, now)


def is_assigned(broker: BrokerId, view: ClusterView, name: TopicPartition) -> bool:
    """Return whether the cluster assigns the partition to the broker, or cannot tell."""
    topic = view.topics.get(name.topic)
    if topic is None:
        return name.topic in view.unreadable  # It is served again once that is repaired.
    return name.partition < len(topic.partitions) and broker in topic.partitions[name.partition].replicas
