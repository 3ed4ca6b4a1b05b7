"""The broker: owns every partition, session and parked request, and turns events into decisions.

    requests ──> api/* ──> Broker ──> take_effects()   what the shell shall do
    events   ──> changing, synced, tick ──> lot.take_completed()   what can be answered now

Nothing here waits, reads a clock or draws a random number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, Offset, ProducerId, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.cleaner import Cleaned, LogCleaner
from odradek.core.cluster import CONSUMER_OFFSETS, ClusterView, TopicInfo
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.configs.topic import TopicConfigs
from odradek.core.coordinators import state_topics
from odradek.core.coordinators.durable import NextSteps, Written
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.shards import Load, Loaded
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.effects import (
    AlterConfigs,
    Change,
    Changed,
    Chore,
    Chores,
    CreateTopics,
    Effect,
    Sync,
    Synced,
    TakeProducerIds,
    Work,
)
from odradek.core.entropy import Entropy
from odradek.core.fetch_sessions import FetchSessions
from odradek.core.groups.coordinator import GroupCoordinator
from odradek.core.housekeeping import Housekeeping, high_watermarks
from odradek.core.large_requests import LargeRequests
from odradek.core.log_starts import LogStarts, WroteStarts
from odradek.core.lookups import LookedUp, Lookups
from odradek.core.moment import Moment
from odradek.core.moving import Copying, Moves
from odradek.core.open_files import OpenFiles
from odradek.core.parked import ParkingLot
from odradek.core.partition import Partition
from odradek.core.staging import Append
from odradek.core.storage import Storage
from odradek.core.timers import Timers
from odradek.core.topic_plans import Planner
from odradek.core.transactions.admission import PRODUCE_ADDS_SINCE, as_produce_is_told
from odradek.core.transactions.coordinator import TransactionCoordinator
from odradek.core.transactions.markers import Marker
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.log.arrival import Arrival
from odradek.log.directory import LogDirectory
from odradek.log.disk import DiskFailed
from odradek.log.log import Log
from odradek.record.batch import Batch

_LOG = logging.getLogger(__name__)

# One sync after another waits for a journal commit each; some at a time share it.  What comes while all are under way
# is gathered for the next.
SYNCS_AT_ONCE = 4
LOGS_PER_SYNC = 500  # To begin it, and to hear of its end, is two milliseconds each.

SomeChange = TypeVar("SomeChange", bound=Change | AlterConfigs)


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
        self.large_requests = LargeRequests(self.lot)
        self.lookups = Lookups(self.lot)
        sessions_max = configs.int("max.incremental.fetch.session.cache.slots")
        self.sessions = FetchSessions(entropy.random_int31, self.lot, sessions_max)
        self.fetch_bytes_max = configs.int("fetch.max.bytes")
        self.partitions: dict[TopicPartition, Partition] = {}
        self.planner = Planner(
            partitions_default=configs.int("num.partitions"),
            replication_factor_default=configs.int("default.replication.factor"),
            random_int31=entropy.random_int31,
            new_uuid=entropy.new_uuid,
        )
        self.log_starts = LogStarts(storage, self.lot)
        self._housekeeping = Housekeeping(storage, self.log_starts, configs)
        self._open_files = OpenFiles(self.partitions)
        self.timers = Timers()
        self.moves = Moves(self)
        self.cleaner = LogCleaner(configs, entropy.new_uuid, self.lot, self.log_starts)
        self._staged: dict[Partition, Offset] = {}  # Partitions with staged batches, and their high watermark before.
        self._unsynced: dict[TopicPartition, None] = {}
        self._syncing: dict[TopicPartition, Partition] = {}
        self._syncs = 0  # How many are under way.
        # What could not be done since too many files are open, or the disk is full: tried again about once a second.
        self._postponed: dict[TopicPartition, None] = {}
        self._unopened: dict[TopicPartition, None] = {}
        self._changes: list[Change | AlterConfigs] = []
        self._making: dict[TopicName, Change] = {}  # State topics that were asked for.
        self._chores: list[Chore] = []
        self._loads: list[Load] = []
        self.works: list[Work] = []  # Works that requests have asked for, and that nobody has begun.
        self._tokens = 0
        self._asks_ids = False
        self._coordinates = False
        self._steps = NextSteps()
        runtime = Runtime(
            configs,
            entropy,
            self.lot,
            self.timers,
            self._steps,
            lambda: self.view,
            self._append_state,
            self.cleaner.ask,
        )
        self.groups = GroupCoordinator(runtime, self._loads.append)
        self.transactions = TransactionCoordinator(runtime, self._loads.append, self._ask_ids, self.end_transaction)
        self._shards = {shards.topic: shards for shards in (self.groups.shards, self.transactions.shards)}

    # Finding things.

    def partition(self, topic: TopicName, index: int) -> Partition:
        """Returns the partition.  Raises Refused if this broker does not have it."""
        partition = self.partitions.get(TopicPartition(topic, index))
        if partition is not None:
            return partition
        known = self.view.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is on another broker")

    def topic_name(self, topic_id: Uuid) -> TopicName:
        """Returns the name of the topic with this id.  Raises Refused(UNKNOWN_TOPIC_ID)."""
        name = self.view.names.get(topic_id)
        if name is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    # Writing.

    def stage(
        self, partition: Partition, batch: Batch, now: Moment, *, all_replicas: bool, checks_sequence: bool = True
    ) -> Append:
        """Gives one batch its place in the log; `commit` writes it.  Raises Refused."""
        high_watermark = partition.positions.high_watermark
        append = partition.stage(batch, now.wall, all_replicas=all_replicas, checks_sequence=checks_sequence)
        self._staged.setdefault(partition, high_watermark)
        if append.needs_sync:
            self._unsynced[partition.topic_partition] = None
        return append

    def commit(self, now: Moment) -> None:
        """Writes all staged batches and wakes who waits for them; called before the broker is asked anything else."""
        if not self._staged:
            return
        staged, self._staged = self._staged, {}
        for partition, high_watermark in staged.items():
            partition.commit(now.wall)
            # Above the high watermark nobody waits for records, and thousands may wait for the next sync.
            if partition.positions.high_watermark != high_watermark or not partition.is_online:
                self.lot.happened(partition.topic_partition)

    def arrived(self, partition: Partition, arrival: Arrival, *, all_replicas: bool) -> Append:
        """Completes a streaming append.  Raises Refused."""
        name = partition.topic_partition
        if self.partitions.get(name) is not partition:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is gone")
        append = partition.arrived(arrival, all_replicas=all_replicas)
        if append.needs_sync:
            self._unsynced[name] = None
        self.lot.happened(name)
        return append

    def synced(self, event: Synced, now: Moment) -> None:
        """Takes in the end of a Sync; what was written meanwhile goes into the next one."""
        self._syncs -= 1
        for name, flush in event.flushes.items():
            syncing, partition = self._syncing.pop(name), self.partitions.get(name)
            # A topic that was deleted meanwhile may be there again, with a log that this flush is not of.
            if partition is None or partition is not syncing:
                continue
            if partition.is_online:
                if isinstance(flush, DiskFailed):
                    self._sync_failed(name, partition, flush)
                elif partition.flushed(flush, now.wall):
                    self.lot.happened(name)
            self._steps.moved(name, now)
        if self.moves.ending:
            self.moves.synced(event.flushes, now)

    def _sync_failed(self, name: TopicPartition, partition: Partition, failed: DiskFailed) -> None:
        if failed.is_out_of_files:
            self._postponed[name] = None
            return
        # The kernel has dropped what it could not write: nobody knows any more what is on the disk.
        _LOG.error("%s goes offline, its sync failed: %s", name, failed)
        partition.take_offline(failed)
        self.lot.happened(name)

    # State of coordinators.

    def _append_state(self, partition: Partition, batch: Batch, now: Moment) -> Append:
        """Writes one batch to a partition of a state topic at once.  Raises Refused."""
        self._check_is_here(partition)
        append = self.stage(partition, batch, now, all_replicas=True, checks_sequence=False)
        self.commit(now)
        if append.refused is not None:
            # A new exception: one that is raised refers to the frames it came through, and would keep all they had.
            raise Refused(append.refused.code, append.refused.detail)
        return append

    def end_transaction(self, name: TopicPartition, marker: Marker, now: Moment) -> Written | None:
        """Writes the marker that ends a transaction in one partition.

        Returns None if the topic is gone.  Raises Refused.
        """
        if name.topic not in self.view.topics:
            return None
        partition = self.partition(*name)
        self.commit(now)
        try:
            append = partition.end_transaction(
                marker.producer.id,
                marker.producer.epoch,
                marker.coordinator_epoch,
                commit=marker.is_commit,
                now=now.wall,
                transaction_version=marker.version,
            )
        except Refused:
            self.lot.happened(name)  # Its disk may have failed.
            raise
        if append.needs_sync:
            self._unsynced[name] = None
        if name.topic == CONSUMER_OFFSETS:
            self.groups.ended(name.partition, marker.producer, is_commit=marker.is_commit)
        self.lot.happened(name)
        return Written(partition, append)

    def admit_transactional(
        self, partition: Partition, batch: Batch, transactional_id: str, version: int, now: Moment
    ) -> Written | None:
        """Asks the transaction coordinator whether a batch may enter the partition (KIP-890).  Raises Refused if not.

        `version` is that of Produce: since 12 the partition joins the transaction by being written to.  Returns the
        coordinator's write that has to be safe before the batch is acknowledged, None if there is none.
        """
        producer, adds = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch), version >= PRODUCE_ADDS_SINCE
        try:
            return self.transactions.admit(partition, producer, transactional_id, now, adds=adds)
        except Refused as refused:
            raise as_produce_is_told(refused, version) from refused

    def admit_state(
        self, name: TopicPartition, producer: ProducerIdAndEpoch, transactional_id: str, now: Moment, *, adds: bool
    ) -> Written | None:
        """Does what admit_transactional does, for records that a coordinator writes to its topic.  Raises Refused."""
        return self.transactions.admit(self.partitions[name], producer, transactional_id, now, adds=adds)

    def _ask_ids(self) -> None:
        self._asks_ids = True

    def _first_free_id(self) -> ProducerId:
        """Returns a producer id above all that are in our logs."""
        logs = (partition.log for partition in self.partitions.values() if partition.is_online)
        used = (producer.id for log in logs for producer in log.producers)
        return ProducerId(max(max(used, default=-1), self.transactions.greatest_id()) + 1)

    def took_ids(self, block: ProducerIdBlock | None) -> None:
        """Takes in the producer ids that were asked for; None if the metadata could not be changed."""
        self.transactions.ids.brought(block)

    def _check_is_here(self, partition: Partition) -> None:
        name = partition.topic_partition
        if self.partitions.get(name) is not partition:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is gone")

    def loaded(self, loaded: Loaded, now: Moment) -> None:
        """Takes in the end of a Load."""
        self._shards[loaded.load.name.topic].loaded(loaded, now)

    def cleaned(self, event: Cleaned, now: Moment) -> None:
        """Takes in the end of a Clean."""
        self.cleaner.ended(event, now)

    def looked_up(self, event: LookedUp) -> None:
        """Takes in the end of a Lookup."""
        self.lookups.ended(event)

    def copied(self, event: Copying, now: Moment) -> None:
        """Takes in the end of a Copying: a partition moves to another data directory."""
        self.moves.copied(event, now)

    def is_syncing(self, name: TopicPartition) -> bool:
        return name in self._syncing

    def moved(self, name: TopicPartition, now: Moment) -> None:
        self.lot.happened(name)
        self._steps.moved(name, now)

    def wrote_starts(self, event: WroteStarts, now: Moment) -> Iterator[None]:
        """Takes in the end of a WriteStarts in slices: its logs begin where they should."""
        return self.log_starts.ended(event, now)

    def state_topic(self, name: TopicName) -> Change | None:
        """Returns the change that makes a state topic; None if it is there.  Raises Refused if it can't be made."""
        if name in self.view.topics:
            return None
        making = self._making.get(name)
        if making is None:
            topic = self.planner.new_topic(state_topics.spec(name, self.configs, self.view), self.view)
            making = self._making[name] = self.change(lambda token: CreateTopics(token, (topic,)))
        return making

    # Topics.

    def change(self, make: Callable[[int], SomeChange]) -> SomeChange:
        """Asks for a change of topics or of configurations; `make` gets the token under which its end will be told."""
        self._tokens += 1
        change = make(self._tokens)
        self._changes.append(change)
        return change

    def changed(self, event: Changed, now: Moment) -> None:
        """Carries out the end of a change of topics at once; `changing` does it in slices."""
        for _ in self.changing(event, now):
            pass

    def changing(self, event: Changed, now: Moment) -> Iterator[None]:
        """Opens, grows or drops the logs of changed topics, then wakes who waits for the change.

        Yields after each partition: then other events may be handled, but no other change.  A topic is there with all
        of its partitions, or not at all; one after the other.
        """
        for name, topic in event.topics.items():
            yield from self._drop(name, now) if topic is None else self._open(topic, now)
        for name in [name for name, change in self._making.items() if change.token == event.token]:
            del self._making[name]
        deleted = [name for name, topic in event.topics.items() if topic is None]
        if deleted:
            yield from self.groups.topics_deleted(deleted, now)
        self.lot.happened(event.token, event)

    def open_logs(self, now: Moment) -> None:
        """Opens the logs of all partitions that the cluster assigns to this broker; after a crash that takes long.

        Logs of topics that were deleted meanwhile are set aside, but not by a cluster that has no topics at all: it may
        be the tree that was lost.
        """
        if self.view.topics:
            self.storage.set_strays_aside(self._is_here, now.wall)
        for topic in list(self.view.topics.values()):
            for _ in self._open(topic, now):
                pass
        if not all(directory.clean_shutdown for directory in self.storage):
            self.transactions.may_hang = any(one.has_open_transactions() for one in self.partitions.values())

    def _is_here(self, name: TopicPartition) -> bool:
        topic = self.view.topics.get(name.topic)
        return (
            topic is not None
            and name.partition < len(topic.partitions)
            and (self.id in topic.partitions[name.partition].replicas)
        )

    def start(self, now: Moment) -> None:
        """Starts the coordinators, after all logs are open, since they may write to any; sessions of members begin."""
        self._coordinates = True
        for partition in list(self.partitions.values()):
            self._coordinate(partition, now)
        self.moves.resume(now)

    def _open(self, topic: TopicInfo, now: Moment) -> Iterator[None]:
        """Opens the logs that a topic has here, then shows it with all of them.  Yields after each log."""
        configs = self.configs.for_topic(topic.configs)
        opened: dict[TopicPartition, Partition] = {}
        unopened: dict[TopicPartition, None] = {}
        for index, info in enumerate(topic.partitions):
            if self.id not in info.replicas:
                continue
            name = TopicPartition(topic.name, index)
            present = self.partitions.get(name)
            if present is not None:
                present.lead(info)
            else:
                log = self._log(name, topic.id, configs, now, unopened)
                opened[name] = Partition(name, log, info, configs)
            yield
        self.view.put(topic)
        self.partitions.update(opened)
        self._unopened.update(unopened)
        if self._coordinates and topic.name in self._shards:
            for partition in opened.values():
                self._coordinate(partition, now)
                yield

    def _install(self, partition: Partition, now: Moment) -> None:
        self.partitions[partition.topic_partition] = partition
        if self._coordinates:
            self._coordinate(partition, now)

    def _coordinate(self, partition: Partition, now: Moment) -> None:
        shards = self._shards.get(partition.topic_partition.topic)
        if shards is not None and partition.is_online:
            shards.adopt(partition, now)

    def _log(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        configs: TopicConfigs,
        now: Moment,
        unopened: dict[TopicPartition, None],
    ) -> Log | None:
        """Returns the partition's log; None if its disk fails: the partition is then there, offline.

        A partition whose log should be tried again is put into `unopened`.
        """
        try:
            # Until the coordinators begin, these are partitions that were there before.
            log = self.storage.open(name, topic_id, configs, now.wall, is_new=self._coordinates)
            if log is not None and log.recovery_point < log.end_offset:
                # After a crash: what was visible before must be so from the first answer on, and durable too.
                log.flush(now.wall)
        except (DiskFailed, Refused) as failed:
            _LOG.error("%s is offline: %s", name, failed)
            if isinstance(failed, DiskFailed) and failed.is_full:
                unopened[name] = None
            return None
        return log

    def _open_again(self, name: TopicPartition, now: Moment) -> None:
        topic, present = self.view.topics.get(name.topic), self.partitions.get(name)
        if topic is None or present is None or present.is_online:
            return
        log = self._log(name, topic.id, present.configs, now, self._unopened)
        if log is not None:
            self._install(Partition(name, log, present.info, present.configs), now)
            self.lot.happened(name)

    def _drop(self, topic: TopicName, now: Moment) -> Iterator[None]:
        """Takes a topic out of sight, then deletes its logs.  Yields after each log."""
        known = self.view.topics.get(topic)
        self.view.remove(topic)
        names = [TopicPartition(topic, index) for index in range(len(known.partitions) if known else 0)]
        gone = [name for name in names if self._take_out(name)]
        for name in gone:
            self.storage.delete(name, now.wall)
            self.lot.happened(name)
            yield

    def _take_out(self, name: TopicPartition) -> bool:
        """Forgets a partition; False if it is not here."""
        partition = self.partitions.pop(name, None)
        if partition is None:
            return False
        partition.take_offline()  # Whoever waits for a write to it waits in vain.
        self._unsynced.pop(name, None)
        if name.topic in self._shards:
            self._shards[name.topic].resign(name.partition)
        return True

    # The shell's side.

    def take_effects(self) -> list[Effect]:
        """Returns what the shell shall do now; each effect but chores comes back as an event."""
        effects: list[Effect] = []
        if self._changes:
            effects.extend(self._changes)
            self._changes.clear()
        if self._chores:
            effects.append(Chores(tuple(self._chores)))
            self._chores.clear()
        if self._asks_ids:
            effects.append(TakeProducerIds(self._first_free_id()))
            self._asks_ids = False
        if self._loads:
            effects.extend(self._loads)
            self._loads.clear()
        if self.works:
            effects.extend(self.works)
            self.works.clear()
        effects.extend(self.lookups.take())
        effects.extend(self.cleaner.take())
        effects.extend(self.log_starts.take())
        effects.extend(self.moves.take())
        if self._unsynced and self._syncs < SYNCS_AT_ONCE:
            effects.extend(self._begin_syncs())
        return effects

    def _begin_syncs(self) -> list[Sync]:
        """Shares out the logs that are to be synced, and are not being synced, among the syncs that may still begin."""
        flushes = {}
        free = SYNCS_AT_ONCE - self._syncs
        held = self.moves.ending
        waiting = (name for name in self._unsynced if name not in self._syncing and name not in held)
        for name in list(islice(waiting, free * LOGS_PER_SYNC)):
            del self._unsynced[name]
            partition = self.partitions.get(name)
            if partition is None or not partition.is_online:
                continue
            try:
                flushes[name] = partition.log.begin_flush()
                self._syncing[name] = partition
            except DiskFailed as failed:  # A file had to be opened for the flush.
                self._sync_failed(name, partition, failed)
        names = list(flushes)
        syncs = [Sync({name: flushes[name] for name in names[first::free]}) for first in range(min(free, len(names)))]
        self._syncs += len(syncs)
        return syncs

    @property
    def is_writing(self) -> bool:
        """True while something written is still to be synced, by a sync under way or one that is due."""
        is_asked = self._changes or self._asks_ids or self.log_starts.are_moving
        return bool(self._unsynced or self._syncs or self._postponed or is_asked)

    def keep_house(self, now: Moment) -> Iterator[None]:
        """Does the periodic tasks, about once a second: retention, due flushes, checkpoints, deletion of files.

        It yields after each short step: anything but another round may happen there.  Raises NoDirectory when the last
        data directory has failed: who runs the broker ends it.
        """
        self._unsynced.update(self._postponed)
        self._postponed.clear()
        for due in self._housekeeping.round(now, self.partitions):
            self._unsynced.update(dict.fromkeys(due.to_sync))
            self._chores.extend(due.chores)
            yield
        for directory in [one for one in self.storage if one.is_found_broken]:
            self._take_directory_offline(directory, now)
            yield
        unopened, self._unopened = self._unopened, {}
        for name in unopened:
            self._open_again(name, now)
            yield
        yield from self.cleaner.keep_house(now, self.partitions)
        self._chores.extend(self.cleaner.notes())
        self.moves.keep_house(now)
        yield
        self._steps.keep_house(now)
        yield from self.groups.keep_house(now)
        yield from self.transactions.keep_house(now)
        if self.transactions.may_hang:
            yield from self.transactions.end_hanging(self.partitions, now)

    def _take_directory_offline(self, directory: LogDirectory, now: Moment) -> None:
        names = directory.fail()
        text = "%s goes offline, and %d partitions with it, until the next start: %s"
        _LOG.error(text, directory.path, len(names), directory.failure)
        self.storage.check_one_is_left()
        for name in names:
            partition = self.partitions.get(name)
            if partition is None or not partition.is_online:
                continue
            partition.take_offline()
            if name.topic in self._shards:
                self._shards[name.topic].resign(name.partition)
            self.lot.happened(name)
            self._steps.moved(name, now)

    def release_files(self, count: int, below: int) -> int:
        """Has up to `count` logs close their files of descriptors below `below`; returns how many did.

        Called when descriptors run short.  If there are too few such logs, others are synced, so that they can.
        """
        released = self._open_files.release(count, below)
        self._unsynced.update(dict.fromkeys(released.to_sync))
        return released.logs

    def next_due(self) -> int | None:
        """Returns when `tick` has something to do next, on the steady clock; None if nothing waits."""
        waiting = (self.lot.next_deadline(), self.timers.next_due())
        return min((due for due in waiting if due is not None), default=None)

    def tick(self, now: Moment) -> None:
        """Completes requests whose deadline has passed, and calls the timers that are due."""
        self.lot.tick(now.steady)
        self.timers.tick(now)

    def stop(self, now: Moment) -> list[str]:
        """Closes the logs cleanly: synced, with checkpoints and the clean-shutdown marker.

        Returns what went wrong, for the broker's log; the next start then checks the logs.
        """
        return self.storage.close(high_watermarks(self.partitions), now.wall)
