"""The broker: owns every partition, session and parked request, and turns events into decisions.

    requests ──> api/* ──> Broker ──> take_effects()   what the shell shall do
    events   ──> changed, synced, tick ──> lot.take_completed()   what can be answered now

Nothing here waits, reads a clock or draws a random number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.cluster import ClusterView, TopicInfo
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.configs.topic import TopicConfigs
from odradek.core.effects import Change, Changed, Chore, Chores, Effect, Sync, Synced
from odradek.core.fetch_sessions import FetchSessions
from odradek.core.housekeeping import Housekeeping, high_watermarks
from odradek.core.moment import Moment
from odradek.core.parked import ParkingLot
from odradek.core.partition import Partition
from odradek.core.staging import Append
from odradek.core.storage import Storage
from odradek.core.topic_plans import Planner
from odradek.log.arrival import Arrival
from odradek.log.disk import DiskFailed
from odradek.log.log import Log
from odradek.record.batch import Batch

_LOG = logging.getLogger(__name__)

SomeChange = TypeVar("SomeChange", bound=Change)


class Entropy(NamedTuple):
    """The shell's randomness."""

    random_int31: Callable[[], int]
    new_uuid: Callable[[], Uuid]


class Broker:
    """One broker of the cluster, without its sockets, threads and clock."""

    def __init__(
        self, broker_id: BrokerId, view: ClusterView, storage: Storage, configs: BrokerConfigs, entropy: Entropy
    ) -> None:
        self.id = broker_id
        self.view = view
        self.storage = storage
        self.configs = configs
        self.entropy = entropy
        self.lot = ParkingLot()
        self.sessions = FetchSessions(entropy.random_int31, configs.int("max.incremental.fetch.session.cache.slots"))
        self.fetch_bytes_max = configs.int("fetch.max.bytes")
        self.partitions: dict[TopicPartition, Partition] = {}
        self.planner = Planner(
            partitions_default=configs.int("num.partitions"),
            replication_factor_default=configs.int("default.replication.factor"),
            random_int31=entropy.random_int31,
            new_uuid=entropy.new_uuid,
        )
        self._housekeeping = Housekeeping(storage, configs)
        self._staged: dict[Partition, None] = {}
        self._unsynced: dict[TopicPartition, None] = {}
        self._syncing: dict[TopicPartition, Partition] | None = None  # While a round of syncs is under way.
        # What could not be done since too many files are open, or the disk is full: tried again about once a second.
        self._postponed: dict[TopicPartition, None] = {}
        self._unopened: dict[TopicPartition, None] = {}
        self._changes: list[Change] = []
        self._chores: list[Chore] = []
        self._tokens = 0

    # Finding things.

    def partition(self, topic: TopicName, index: int) -> Partition:
        """The partition, if this broker has it.  Raises Refused."""
        partition = self.partitions.get(TopicPartition(topic, index))
        if partition is not None:
            return partition
        known = self.view.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is on another broker")

    def topic_name(self, topic_id: Uuid) -> TopicName:
        """The name behind an id.  Raises Refused(UNKNOWN_TOPIC_ID)."""
        name = self.view.names.get(topic_id)
        if name is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    # Writing.

    def stage(self, partition: Partition, batch: Batch, now: Moment, *, all_replicas: bool) -> Append:
        """Give one batch its place in the log; `commit` writes it.  Raises Refused."""
        append = partition.stage(batch, now.wall, all_replicas=all_replicas)
        self._staged[partition] = None
        if append.needs_sync:
            self._unsynced[partition.topic_partition] = None
        return append

    def commit(self, now: Moment) -> None:
        """Write what was staged, before anything else is asked of the broker, and wake who waits for it."""
        if not self._staged:
            return
        staged, self._staged = self._staged, {}
        for partition in staged:
            partition.commit(now.wall)
            self.lot.happened(partition.topic_partition)

    def arrived(self, partition: Partition, arrival: Arrival, *, all_replicas: bool) -> Append:
        """A batch that was written while it came is complete.  Raises Refused."""
        name = partition.topic_partition
        if self.partitions.get(name) is not partition:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is gone")
        append = partition.arrived(arrival, all_replicas=all_replicas)
        if append.needs_sync:
            self._unsynced[name] = None
        self.lot.happened(name)
        return append

    def synced(self, event: Synced, now: Moment) -> None:
        """A round of syncs ended.  What was written meanwhile goes into the next one."""
        syncing, self._syncing = self._syncing, None
        for name, flush in event.flushes.items():
            partition = self.partitions.get(name)
            # A topic that was deleted meanwhile may be there again, with a log that this flush is not of.
            if partition is None or syncing is None or partition is not syncing[name] or not partition.is_online:
                continue
            if isinstance(flush, DiskFailed):
                self._sync_failed(name, partition, flush)
            elif partition.flushed(flush, now.wall):
                self.lot.happened(name)

    def _sync_failed(self, name: TopicPartition, partition: Partition, failed: DiskFailed) -> None:
        if failed.is_out_of_files:
            self._postponed[name] = None
            return
        # The kernel has dropped what it could not write: nobody knows any more what is on the disk.
        _LOG.error("%s goes offline, its sync failed: %s", name, failed)
        partition.take_offline()
        self.lot.happened(name)

    # Topics.

    def change(self, make: Callable[[int], SomeChange]) -> SomeChange:
        """Ask for a change of topics; `make` gets the token under which its end will be told."""
        self._tokens += 1
        change = make(self._tokens)
        self._changes.append(change)
        return change

    def changed(self, event: Changed, now: Moment) -> None:
        """A change of topics ended: open, grow or drop logs, then wake who waits for it."""
        for name, topic in event.topics.items():
            if topic is None:
                self._drop(name, now)
            else:
                self.view = self.view.with_topics([topic])
                self._open(topic, now)
        self.lot.happened(event.token, event)

    def start(self, now: Moment) -> None:
        """Open what the cluster says is here.  Logs of topics that were deleted meanwhile are deleted too."""
        for topic in self.view.topics.values():
            self._open(topic, now)

    def _open(self, topic: TopicInfo, now: Moment) -> None:
        configs = self.configs.for_topic(topic.configs)
        for index, info in enumerate(topic.partitions):
            if self.id not in info.replicas:
                continue
            name = TopicPartition(topic.name, index)
            present = self.partitions.get(name)
            if present is not None:
                present.info = info
                continue
            self.partitions[name] = Partition(name, self._log(name, topic.id, configs, now), info, configs)

    def _log(self, name: TopicPartition, topic_id: Uuid, configs: TopicConfigs, now: Moment) -> Log | None:
        """The partition's log; None if its disk fails: the partition is then there, offline."""
        try:
            log = self.storage.open(name, topic_id, configs, now.wall)
            if log is not None and log.recovery_point < log.end_offset:
                # After a crash: what was visible before must be so from the first answer on, and durable too.
                log.flush(now.wall)
        except (DiskFailed, Refused) as failed:
            _LOG.error("%s is offline: %s", name, failed)
            if isinstance(failed, DiskFailed) and failed.is_full:
                self._unopened[name] = None
            return None
        return log

    def _open_again(self, name: TopicPartition, now: Moment) -> None:
        topic, present = self.view.topics.get(name.topic), self.partitions.get(name)
        if topic is None or present is None or present.is_online:
            return
        log = self._log(name, topic.id, present.configs, now)
        if log is not None:
            self.partitions[name] = Partition(name, log, present.info, present.configs)
            self.lot.happened(name)

    def _drop(self, topic: TopicName, now: Moment) -> None:
        known = self.view.topics.get(topic)
        self.view = self.view.without_topics([topic])
        for index in range(len(known.partitions) if known else 0):
            name = TopicPartition(topic, index)
            if self.partitions.pop(name, None) is not None:
                # What can't be renamed now is deleted when a topic of the same name is made.
                with suppress(DiskFailed):
                    self.storage.delete(name, now.wall)
                self._unsynced.pop(name, None)
                self.lot.happened(name)

    # The shell's side.

    def take_effects(self) -> list[Effect]:
        """What the shell shall do now.  Never blocks on it; each comes back as an event."""
        effects: list[Effect] = []
        if self._changes:
            effects.extend(self._changes)
            self._changes.clear()
        if self._chores:
            effects.append(Chores(tuple(self._chores)))
            self._chores.clear()
        if self._unsynced and self._syncing is None:
            effects.append(self._begin_sync())
        return effects

    def _begin_sync(self) -> Sync:
        self._syncing, flushes = {}, {}
        for name in self._unsynced:
            partition = self.partitions.get(name)
            if partition is None or not partition.is_online:
                continue
            try:
                flushes[name] = partition.log.begin_flush()
                self._syncing[name] = partition
            except DiskFailed as failed:  # A file that has to be opened for it.
                self._sync_failed(name, partition, failed)
        self._unsynced.clear()
        return Sync(flushes)

    def keep_house(self, now: Moment) -> None:
        """About once a second: retention, flushes that are due, checkpoints, files whose time is over."""
        due = self._housekeeping.tick(now, self.partitions)
        self._unsynced.update(dict.fromkeys(due.to_sync) | self._postponed)
        self._postponed.clear()
        unopened, self._unopened = self._unopened, {}
        for name in unopened:
            self._open_again(name, now)
        self._chores.extend(due.chores)

    def stop(self, now: Moment) -> list[str]:
        """Leave the logs as a clean stop leaves them: synced, with checkpoints and the clean-shutdown marker.

        What went wrong with it, for the broker's log; the next start then checks the logs.
        """
        return self.storage.close(high_watermarks(self.partitions), now.wall)
