"""The broker: owns every partition, session and parked request, and turns events into decisions.

    requests ──> api/* ──> Broker ──> take_effects()             work for the shell
    events   ──> on_event, tick ──> purgatory.take_completed()   requests that can be answered now

Each concern with its own state is an object: the logs of partitions (core/broker/replicas.py), their flushes
(core/disks/flushes.py), both coordinators (core/broker/coordinators.py), metadata changes
(core/broker/metadata_change_requests.py), moves, lookups, log starts, the cleaner.  Nothing here waits, reads a clock
or draws a random number.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, Offset, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.broker.controlled import ControlRequestHandler
from odradek.core.broker.coordinators import Coordinators
from odradek.core.broker.effects import Changed, Effect, Event
from odradek.core.broker.housekeeping import Housekeeping, high_watermarks
from odradek.core.broker.large_requests import LargeRequests
from odradek.core.broker.metadata_change_requests import MetadataChangeRequests
from odradek.core.broker.metadata_update import METADATA_UPDATED, Overrides
from odradek.core.broker.replicas import Errors, Replicas
from odradek.core.cleaner.cleaning_steps import Cleaned
from odradek.core.cleaner.log_cleaner import LogCleaner
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.inter_broker_protocol import protocol_of
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.core.controller.broker_request_batch import BecomeLeaderOrFollower, ControlRequest, UpdateMetadata
from odradek.core.coordinators.durable import NextSteps, PendingWrite
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.shards import Loaded
from odradek.core.disks.flushes import Flushes, Synced
from odradek.core.disks.log_dir_moves import Copying, Moves
from odradek.core.disks.open_files import OpenFiles
from odradek.core.fetch.fetch_sessions import FetchSessions, LogEnd
from odradek.core.kernel.chores import Chore, Chores, ChoresRun
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, ClusterView, TopicInfo
from odradek.core.kernel.entropy import Entropy
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.kernel.timers import Timers
from odradek.core.kernel.work import Work
from odradek.core.partition.alter_partition_manager import AlterPartitionManager
from odradek.core.partition.leading import Leading
from odradek.core.partition.log_starts import LogStarts
from odradek.core.partition.lookups import LookupCompleted, Lookups
from odradek.core.partition.partition import Partition
from odradek.core.partition.replica_selector import RACK_AWARE_SELECTOR
from odradek.core.partition.staging import Append
from odradek.core.partition.storage import Storage, log_config
from odradek.core.replication.replica_fetcher_manager import ReplicaFetcherManager
from odradek.core.topics.topic_plans import Planner
from odradek.core.transactions.additions import AddPartitions
from odradek.core.transactions.transaction_markers import Marker, WriteMarkers
from odradek.log.log.arrival import Arrival
from odradek.record.record_batch import Batch

if TYPE_CHECKING:
    from odradek.core.broker.controller_queries import ControllerQueries

MOVED_PER_SLICE = 1_000  # Partitions without parked requests.
CONFIGURED_PER_SLICE = 100  # Topics whose replicas already have this configuration.


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
        self.protocol = protocol_of(configs)
        self.purgatory = Purgatory()
        self.timers = Timers()
        self._steps = NextSteps()
        self._chores: list[Chore] = []
        self.works: list[Work] = []  # Works that requests have queued and the shell has not taken.
        self._serve_requests()
        # Partitions.
        self.partitions: dict[TopicPartition, Partition] = {}
        self._staged: dict[Leading, Offset] = {}  # Leaders with staged batches, and their high watermarks before.
        self.log_starts = LogStarts(storage, self.purgatory)
        self._housekeeping = Housekeeping(storage, self.log_starts, configs)
        self._open_files = OpenFiles(self.partitions)
        self.flushes = Flushes(self.partitions, self.purgatory, self._steps)
        self.moves = Moves(self)
        self.cleaner = LogCleaner(configs, entropy.new_uuid, self.purgatory, self.log_starts, self.flushes)
        # Coordinators and replication.
        self.coordinators = Coordinators(self._runtime(), self.end_transaction, self.partitions)
        self.groups = self.coordinators.groups
        self.transactions = self.coordinators.transactions
        self._replicate()
        self._handlers = self._handlers_of_events()

    def _serve_requests(self) -> None:
        """Create what requests use besides partitions."""
        configs = self.configs
        self.large_requests = LargeRequests(self.purgatory)
        self.lookups = Lookups(self.purgatory)
        sessions_max = configs.int("max.incremental.fetch.session.cache.slots")
        self.sessions = FetchSessions(self.entropy.random_int31, self.purgatory, sessions_max)
        self.fetch_bytes_max = configs.int("fetch.max.bytes")
        self.selects_by_rack = configs.optional_str("replica.selector.class") == RACK_AWARE_SELECTOR
        self.replicated_out_bytes = 0  # Records sent to followers.
        self.planner = Planner(
            partitions_default=configs.int("num.partitions"),
            replication_factor_default=configs.int("default.replication.factor"),
            random_int31=self.entropy.random_int31,
            new_uuid=self.entropy.new_uuid if self.protocol.has_topic_ids else _no_topic_id,
        )
        self.changes = MetadataChangeRequests(self.planner, configs, self.view)

    def _runtime(self) -> Runtime:
        return Runtime(
            self.id,
            self.configs,
            self.entropy,
            self.purgatory,
            self.timers,
            self._steps,
            lambda: self.view,
            self._append_state,
            lambda name: self.cleaner.request_compaction(self.partitions[name]),
            self.protocol,
        )

    def _replicate(self) -> None:
        """Create what leads and follows as the controller says."""
        self.alter_partition = AlterPartitionManager(
            self.id,
            self.view,
            self.configs.int("replica.lag.time.max.ms"),
            self.timers,
            self.moved,
            sync=self.flushes.request_flush,
        )
        self.fetchers = ReplicaFetcherManager(
            self.timers,
            per_leader=self.configs.int("num.replica.fetchers"),
            backoff_ms=self.configs.int("replica.fetch.backoff.ms"),
            diverging_in_fetch=self.protocol.truncates_on_fetch,
        )
        self.replicas = Replicas(
            self.id,
            self.storage,
            self.partitions,
            purgatory=self.purgatory,
            steps=self._steps,
            flushes=self.flushes,
            coordinators=self.coordinators,
            alter_partition=self.alter_partition,
            fetchers=self.fetchers,
            may_hand_over=self.protocol.has_log_dir_events,
        )
        self.controlled = ControlRequestHandler(self.view, self.replicas, self.configs)
        self.controller_queries: ControllerQueries | None = None  # None while nothing handles them.
        # Topics for which unclean.leader.election.enable was altered to true, None for all; the shell reports them.
        self.unclean_enabled: dict[TopicName | None, None] = {}

    # Finding partitions and topics.

    def leader(self, topic: TopicName, index: int) -> Leading:
        """Return the leading replica of a partition; raise Refused if it is not here, or only follows."""
        return self.replica(topic, index).leader()

    def replica(self, topic: TopicName, index: int) -> Partition:
        """Return this broker's replica, whatever its role; raise Refused if it has none."""
        partition = self.partitions.get(TopicPartition(topic, index))
        if partition is None:
            raise self.without_replica(topic, index)
        return partition

    def without_replica(self, topic: TopicName, index: int) -> Refused:
        """Return the error for a partition of which this broker has no replica."""
        known = self.view.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
        return Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {topic}-{index}")

    def topic_name(self, topic_id: Uuid) -> TopicName:
        """Return the name of the topic with this id; raise Refused(UNKNOWN_TOPIC_ID) if there is none."""
        name = self.view.names.get(topic_id)
        if name is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    # Writes.

    def stage(
        self, leading: Leading, batch: Batch, now: Moment, *, all_replicas: bool, checks_sequence: bool = True
    ) -> Append:
        """Assign offsets to one batch; `commit` writes it.  Raises Refused."""
        high_watermark = leading.positions.high_watermark
        append = leading.stage(batch, now, all_replicas=all_replicas, checks_sequence=checks_sequence)
        self._staged.setdefault(leading, high_watermark)
        if append.needs_sync:
            self.flushes.request_flush(leading.name)
        return append

    def commit(self, now: Moment) -> None:
        """Write all staged batches and wake the requests that wait for them.

        Called before any other request is handled.
        """
        if not self._staged:
            return
        staged, self._staged = self._staged, {}
        for leading, high_watermark in staged.items():
            leading.commit(now)
            assert not leading.has_staged, "a commit writes or refuses all staged batches"
            if leading.in_sync is not None:
                self._written_before_followers(leading, high_watermark, now)
            # No request waits for records above the high watermark, and thousands may wait for the next sync.
            elif leading.positions.high_watermark != high_watermark or leading.ended is not None:
                self.purgatory.happened(leading.name)
        assert not self._staged, "coordinators commit what they stage"

    def _written_before_followers(self, leading: Leading, high_watermark: Offset, now: Moment) -> None:
        """Wake requests that wait for a partition with followers; follower fetches wait for its log end.

        Time alone may also let the high watermark pass records that were written long ago.
        """
        self.purgatory.happened(LogEnd(leading.name))
        if leading.positions.high_watermark != high_watermark or leading.ended is not None:
            self.moved(leading.name, now)

    def arrived(self, leading: Leading, arrival: Arrival, now: Moment, *, all_replicas: bool) -> Append:
        """Complete a streaming append.  Raises Refused."""
        high_watermark = leading.positions.high_watermark
        append = leading.arrived(arrival, now, all_replicas=all_replicas)
        if append.needs_sync:
            self.flushes.request_flush(leading.name)
        if leading.in_sync is not None:
            self._written_before_followers(leading, high_watermark, now)
        else:
            self.purgatory.happened(leading.name)
        return append

    # State of coordinators.

    def _append_state(self, leading: Leading, batch: Batch, now: Moment) -> Append:
        """Write one batch to a partition of a state topic at once.  Raises Refused."""
        append = self.stage(leading, batch, now, all_replicas=True, checks_sequence=False)
        self.commit(now)
        if append.refused is not None:
            # A new exception: a raised one refers to the frames that it passed, and keeps their data alive.
            raise Refused(append.refused.code, append.refused.detail)
        return append

    def end_transaction(self, name: TopicPartition, marker: Marker, now: Moment) -> PendingWrite | None:
        """Write the marker that ends a transaction in one partition.

        Returns None if the topic was deleted.  Raises Refused.
        """
        if name.topic not in self.view.topics:
            return None
        leading = self.leader(*name)
        self.commit(now)
        high_watermark = leading.positions.high_watermark
        try:
            append = leading.end_transaction(
                marker.producer.id,
                marker.producer.epoch,
                marker.coordinator_epoch,
                commit=marker.is_commit,
                now=now,
                transaction_version=marker.version,
            )
        except Refused:
            self.purgatory.happened(name)  # Its disk may have failed.
            raise
        if append.needs_sync:
            self.flushes.request_flush(name)
        if name.topic == CONSUMER_OFFSETS:
            self.groups.on_transaction_completed(name.partition, marker.producer, is_commit=marker.is_commit)
        if leading.in_sync is not None:
            self._written_before_followers(leading, high_watermark, now)
        else:
            self.purgatory.happened(name)
        return PendingWrite(append)

    # Start, and events.

    def start(self, now: Moment) -> None:
        """Start the work; the storage has opened the logs, and the controller assigns their roles."""
        if not all(directory.clean_shutdown for directory in self.storage):
            logs = (log for directory in self.storage for log in directory.logs.values())
            self.transactions.may_hang = any(log.producers.open_transactions() for log in logs)
        # All logs are open by now.  A coordinator with a decided transaction writes its markers at once.  It would take
        # a partition that is not open for a deleted one, and an acknowledged commit would be lost.
        self.coordinators.start_coordinating(now)

    def on_registered(self, epoch: int) -> None:
        """Apply this broker's registration epoch, and announce it to the leaders of all followed partitions.

        Otherwise the leader of a partition without writes would know its follower by our former epoch, and a proposed
        ISR with that follower is refused (KIP-903).
        """
        self.controlled.broker_epoch = epoch
        self.fetchers.renew_sessions()

    def on_event(self, event: Event, now: Moment) -> None:
        """Take in the end of an effect."""
        self._handlers[type(event)](event, now)

    def _handlers_of_events(self) -> dict[type, Callable[[Any, Moment], None]]:
        return {
            Synced: self._on_synced,
            Loaded: self.coordinators.on_loaded,
            Cleaned: self._on_cleaned,
            ChoresRun: self._on_chores_run,
            LookupCompleted: self.lookups.on_lookup_completed,
            Copying: self.moves.on_copied,
            Changed: self._on_changed,
        }

    def _on_synced(self, event: Synced, now: Moment) -> None:
        """Complete a Sync; records written during it belong to the next one."""
        self.flushes.on_synced(event, now)
        if self.flushes.held:
            self.moves.on_synced(event.flushes, now)
        self.cleaner.on_synced(event.flushes, now)

    def _on_cleaned(self, event: Cleaned, now: Moment) -> None:
        self.cleaner.on_cleaned(event, now)
        self._reap_for_cleaner(now)

    def _on_chores_run(self, _: ChoresRun, now: Moment) -> None:
        """Complete Chores: they may have renamed files that a compaction waits for."""
        if self.cleaner.awaits_rename:
            self._reap_for_cleaner(now)
            self.cleaner.on_renamed(now)

    def _reap_for_cleaner(self, now: Moment) -> None:
        if self.cleaner.awaits_rename:  # Not in the next round: requests wait for the compaction.
            self._chores.extend(self.storage.reaps(now.wall))

    def _on_changed(self, event: Changed, _: Moment) -> None:
        """Complete a change of topics that is visible here, or was refused, and wake its requests."""
        self.changes.on_change_completed(event.token)
        self.purgatory.happened(event.token, event)

    def apply_controller_request(
        self, sent: ControlRequest, overrides: Overrides, now: Moment
    ) -> Generator[None, None, Errors]:
        """Apply a controller request in slices; no other controller request may run in between.

        Returns the partitions for which it failed.  Raises Refused for the whole request, before the first slice.
        """
        errors, deleted = yield from self.controlled.apply(sent, overrides, now)
        if isinstance(sent.request, BecomeLeaderOrFollower):
            self.moves.resume(now)
            yield from self._moved_by_replicas(sent.request, now)
        if isinstance(sent.request, UpdateMetadata):
            # Replicas come first, and the configuration may have been altered between the two.
            for number, name in enumerate(overrides, 1):
                if name in self.view.topics:
                    yield from self.configure(self.view.topics[name], now)
                if not number % CONFIGURED_PER_SLICE:
                    yield
            self.purgatory.happened(METADATA_UPDATED)
        if deleted:
            yield from self.groups.topics_deleted(deleted, now)
        return errors

    def _moved_by_replicas(self, request: BecomeLeaderOrFollower, now: Moment) -> Generator[None, None, None]:
        """Wake requests for partitions whose replicas have changed: there may be fewer to wait for."""
        for number, name in enumerate(request.partitions, 1):
            partition, is_awaited = self.partitions.get(name), self.purgatory.is_awaited(name)
            if partition is not None and partition.leading is not None:
                self.moved(name, now)
            if is_awaited or not number % MOVED_PER_SLICE:
                yield

    def configure(self, topic: TopicInfo, now: Moment) -> Iterator[None]:
        """Apply the configuration of a topic to its replicas; yield after each replica that changes."""
        configs = self.configs.for_topic(topic.configs)
        for index in range(len(topic.partitions)):
            partition = self.partitions.get(TopicPartition(topic.name, index))
            if partition is not None and partition.configs is not configs:
                self.configure_replica(partition, configs, now)
                yield

    def configure_replica(self, partition: Partition, configs: TopicConfigs, now: Moment) -> None:
        """Apply a configuration to a replica."""
        self.commit(now)
        partition.configure(configs, log_config(configs))

    def moved(self, name: TopicPartition, now: Moment) -> None:
        """Wake requests for a partition whose high watermark, log start or log has changed."""
        self.purgatory.happened(name)
        self._steps.moved(name, now)

    # Interface to the shell.

    def take_effects(self) -> list[Effect]:
        """Return the effects for the shell to run now; the end of each comes back as an event."""
        effects: list[Effect] = []
        if self.changes.has_pending:
            effects.extend(self.changes.take_changes())
        if self._chores:
            effects.append(Chores(tuple(self._chores)))
            self._chores.clear()
        if self.coordinators.has_effects:
            effects.extend(self.coordinators.take_effects())
        if self.works:
            effects.extend(self.works)
            self.works.clear()
        effects.extend(self.lookups.take_lookups())
        effects.extend(self.cleaner.take_cleans())
        effects.extend(self.log_starts.take_writes())
        effects.extend(self.moves.take_copies())
        if self.flushes.may_begin:
            effects.extend(self.flushes.take_syncs())
        return effects

    def take_markers(self) -> list[WriteMarkers]:
        """Return the markers to send to other brokers now; each ends in one `transactions.markers.on_answered`."""
        return self.transactions.markers.take_markers()

    def take_additions(self) -> list[AddPartitions]:
        """Return the additions to send to other coordinators; each ends in `transactions.additions.on_answered`."""
        return self.transactions.additions.take_additions()

    @property
    def is_writing(self) -> bool:
        """Return whether a sync or a change of the metadata is still due."""
        is_pending = self.changes.has_pending or self.coordinators.needs_ids or self.log_starts.has_pending
        return self.flushes.has_pending or is_pending

    def run_housekeeping(self, now: Moment) -> Iterator[None]:
        """Run the periodic tasks, about once a second: retention, due flushes, checkpoints, file deletion.

        Yields after each short step, where anything but another round may happen.  Raises NoDirectory when the last
        data directory has failed; the caller then stops the broker.
        """
        self.flushes.try_again()
        for due in self._housekeeping.round(now, self.partitions):
            self.flushes.request_flushes(due.to_sync)
            self._chores.extend(due.chores)
            yield
        yield from self.replicas.take_broken_offline(now)
        yield from self.replicas.try_again(now)
        yield from self.alter_partition.shrink(now)
        yield from self.cleaner.schedule_passes(now, self.partitions)
        self._chores.extend(self.cleaner.set_aside.list_writes())
        self._chores.extend(self.replicas.take_cuts())
        self.moves.advance_waiting_moves(now)
        yield
        self._steps.run_safe_steps(now)
        yield from self.coordinators.run_housekeeping(now)

    def release_files(self, count: int, below: int) -> int:
        """Close the files of up to `count` logs with descriptors below `below`; return how many were closed.

        Called when descriptors run short.  If too few logs can close their files, others are synced, so that they can
        later.
        """
        released = self._open_files.release(count, below)
        self.flushes.request_flushes(released.to_sync)
        return released.logs

    def next_due(self) -> int | None:
        """Return the time of the next `tick` with work, on the steady clock; None if nothing waits."""
        waiting = (self.purgatory.next_deadline(), self.timers.next_due())
        return min((due for due in waiting if due is not None), default=None)

    def tick(self, now: Moment) -> None:
        """Complete requests whose deadline has passed, and call the timers that are due."""
        self.purgatory.tick(now.steady)
        self.timers.tick(now)

    def stop(self, now: Moment) -> list[str]:
        """Close the logs cleanly: synced, with checkpoints and the clean-shutdown marker.

        Returns the failures for the broker's log; after a failure, the next start checks the logs.
        """
        return self.storage.close(high_watermarks(self.partitions), now.wall)


def _no_topic_id() -> Uuid:
    """Return the placeholder for a topic's id where topics have none (before Kafka 2.8)."""
    return ZERO_UUID
