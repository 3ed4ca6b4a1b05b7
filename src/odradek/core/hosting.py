"""The partitions that the cluster assigns to this broker: opens, grows and drops their logs, takes them offline.

Whoever looks for a topic finds it with all of its partitions, or not at all.  What takes long yields after each log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from odradek.base.errors import Refused
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.cluster import ClusterView, TopicInfo
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.configs.topic import TopicConfigs
from odradek.core.coordinating import Coordinators
from odradek.core.coordinators.durable import NextSteps
from odradek.core.flushes import Flushes
from odradek.core.moment import Moment
from odradek.core.parked import ParkingLot
from odradek.core.partition import Partition
from odradek.core.storage import Storage
from odradek.log.directory import LogDirectory
from odradek.log.disk import DiskFailed
from odradek.log.durability import flush_now
from odradek.log.log import Log

_LOG = logging.getLogger(__name__)


class HostedPartitions:
    """Writes `partitions`, which all others only read."""

    def __init__(
        self,
        broker_id: BrokerId,
        view: ClusterView,
        storage: Storage,
        configs: BrokerConfigs,
        partitions: dict[TopicPartition, Partition],
        *,
        lot: ParkingLot,
        steps: NextSteps,
        flushes: Flushes,
        coordinators: Coordinators,
    ) -> None:
        self._id = broker_id
        self._view = view
        self._storage = storage
        self._configs = configs
        self._partitions = partitions
        self._lot = lot
        self._steps = steps
        self._flushes = flushes
        self._coordinators = coordinators
        # What could not be opened since too many files are open, or the disk is full: tried again once a second.
        self._unopened: dict[TopicPartition, None] = {}

    def open_all(self, now: Moment) -> None:
        """Opens the logs of all partitions that the cluster assigns to this broker; after a crash that takes long.

        Logs of topics that were deleted meanwhile are set aside, but not by a cluster that has no topics at all: it may
        be the tree that was lost.
        """
        if self._view.topics or self._view.unreadable:
            self._storage.set_strays_aside(self._is_here, now.wall)
        for topic in list(self._view.topics.values()):
            for _ in self.open(topic, now):
                pass

    def _is_here(self, name: TopicPartition) -> bool:
        topic = self._view.topics.get(name.topic)
        if topic is None:
            return name.topic in self._view.unreadable  # It is served again once that was mended.
        return name.partition < len(topic.partitions) and self._id in topic.partitions[name.partition].replicas

    def open(self, topic: TopicInfo, now: Moment) -> Iterator[None]:
        """Opens the logs that a topic has here, then shows it with all of them.  Yields after each log."""
        configs = self._configs.for_topic(topic.configs)
        opened: dict[TopicPartition, Partition] = {}
        unopened: dict[TopicPartition, None] = {}
        for index, info in enumerate(topic.partitions):
            if self._id not in info.replicas:
                continue
            name = TopicPartition(topic.name, index)
            present = self._partitions.get(name)
            if present is not None:
                present.lead(info)
            else:
                log = self._log(name, topic.id, configs, now, unopened)
                opened[name] = Partition(name, log, info, configs)
            yield
        self._view.put(topic)
        self._partitions.update(opened)
        self._unopened.update(unopened)
        if self._coordinators.coordinate(topic.name):
            for partition in opened.values():
                self._coordinators.adopt(partition, now)
                yield

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
            log = self._storage.open(name, topic_id, configs, now.wall, is_new=self._coordinators.have_begun)
            if log is not None and log.recovery_point < log.end_offset:
                # After a crash: what was visible before must be so from the first answer on, and durable too.
                flush_now(log, now.wall)
        except (DiskFailed, Refused) as failed:
            _LOG.error("%s is offline: %s", name, failed)
            if isinstance(failed, DiskFailed) and failed.is_full:
                unopened[name] = None
            return None
        return log

    def try_again(self, now: Moment) -> Iterator[None]:
        """Opens logs that could not be opened before, for want of files or of room.  Yields after each."""
        unopened, self._unopened = self._unopened, {}
        for name in unopened:
            self._open_again(name, now)
            yield

    def _open_again(self, name: TopicPartition, now: Moment) -> None:
        topic, present = self._view.topics.get(name.topic), self._partitions.get(name)
        if topic is None or present is None or present.is_online:
            return
        log = self._log(name, topic.id, present.configs, now, self._unopened)
        if log is not None:
            partition = self._partitions[name] = Partition(name, log, present.info, present.configs)
            self._coordinators.adopt(partition, now)
            self._lot.happened(name)

    def drop(self, topic: TopicName, now: Moment) -> Iterator[None]:
        """Takes a topic out of sight, then deletes its logs.  Yields after each log."""
        known = self._view.topics.get(topic)
        self._view.remove(topic)
        names = [TopicPartition(topic, index) for index in range(len(known.partitions) if known else 0)]
        gone = [name for name in names if self._take_out(name)]
        for name in gone:
            self._storage.delete(name, now.wall)
            self._lot.happened(name)
            yield

    def _take_out(self, name: TopicPartition) -> bool:
        """Forgets a partition; False if it is not here."""
        partition = self._partitions.pop(name, None)
        if partition is None:
            return False
        partition.take_offline()  # Whoever waits for a write to it waits in vain.
        self._flushes.forget(name)
        self._coordinators.resign(name)
        return True

    def take_broken_offline(self, now: Moment) -> Iterator[None]:
        """Takes data directories offline that were found broken, and what is in them.  Yields after each.

        Raises NoDirectory when the last one has failed.
        """
        for directory in [one for one in self._storage if one.is_found_broken]:
            self._take_offline(directory, now)
            yield

    def _take_offline(self, directory: LogDirectory, now: Moment) -> None:
        names = directory.fail()
        text = "%s goes offline, and %d partitions with it, until the next start: %s"
        _LOG.error(text, directory.path, len(names), directory.failure)
        self._storage.check_one_is_left()
        for name in names:
            partition = self._partitions.get(name)
            if partition is None or not partition.is_online:
                continue
            partition.take_offline()
            self._coordinators.resign(name)
            self._lot.happened(name)
            self._steps.moved(name, now)
