"""The shards of one coordinator: for each partition of its state topic that is led here, the state that lies in it.

    partition opened ──> small log: loaded at once
                    └──> large log: Load, an effect ──> loaded beside the loop ──> installed
    meanwhile COORDINATOR_LOAD_IN_PROGRESS; on any other broker NOT_COORDINATOR

A log that has grown far beyond the state in it is written anew at its end, and cut off before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import MIB, Offset, ProducerId, TopicName, TopicPartition
from odradek.core.coordinators import loading
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.state_log import NOBODY, TOO_LARGE, ProducerIdAndEpoch, StateRecord
from odradek.core.coordinators.state_topics import partition_for
from odradek.core.moment import Moment
from odradek.core.partition import Partition
from odradek.log.disk import DiskFailed, FileSlice

_LOG = logging.getLogger(__name__)

LOADED_AT_ONCE_BYTES = 256 * 1024
REWRITTEN_FROM_BYTES = 8 * MIB
REWRITTEN_AT_TIMES = 4
RECORDS_PER_BATCH = 500


class Shard(loading.Replayed, Protocol):
    """The state of one partition of a state topic."""

    def begin(self, now: Moment) -> None:
        """Starts the loaded shard: sets timers, finishes what a crash interrupted."""

    def end(self) -> None:
        """Ends the shard, which moved to another broker or lost its log: cancels timers, answers waiting requests."""

    def records(self) -> Iterator[StateRecord]:
        """Yields the committed state as records."""

    def pending(self) -> Iterator[tuple[ProducerId, StateRecord]]:
        """Yields the records of open transactions with their producers, in order; to be written after `records`."""

    def write_only(self, records: list[StateRecord], now: Moment, producer: ProducerIdAndEpoch = NOBODY) -> Written:
        """Writes records to the log that are in the state already.  Raises Refused."""


SomeShard = TypeVar("SomeShard", bound=Shard)


class Load(NamedTuple):
    """An effect: make a shard's state from its log below `end`, in a thread; `Broker.loaded` gets how that ended."""

    name: TopicPartition
    slices: list[FileSlice]
    end: Offset
    state: Shard

    def run(self) -> Loaded:
        try:
            loading.replay(self.slices, self.state)
        except (DiskFailed, Refused) as failure:
            return Loaded(self, failure)
        return Loaded(self, None)


class Loaded(NamedTuple):
    """The end of a Load."""

    load: Load
    failure: DiskFailed | Refused | None


class Shards(Generic[SomeShard]):
    """The shards of one state topic on this broker."""

    def __init__(
        self, topic: TopicName, make: Callable[[Partition], SomeShard], ask: Callable[[Load], None], runtime: Runtime
    ) -> None:
        """`ask` has the shell carry out a Load."""
        self.topic = topic
        self._make = make
        self._ask = ask
        self._runtime = runtime
        self._shards: dict[int, SomeShard] = {}
        self._loading: dict[int, SomeShard] = {}
        self._partitions: dict[int, Partition] = {}
        self._rewritten: dict[int, _Rewritten] = {}
        self._without_files: set[int] = set()  # Partitions that were to be loaded when no descriptor was free.

    def __iter__(self) -> Iterator[SomeShard]:
        return iter(list(self._shards.values()))

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def partition_of(self, key: str) -> int:
        """Returns the partition that has the key.  Raises Refused(COORDINATOR_NOT_AVAILABLE) without a state topic."""
        topic = self._runtime.view().topics.get(self.topic)
        if topic is None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there is no topic {self.topic} yet")
        return partition_for(key, len(topic.partitions))

    def find(self, key: str) -> SomeShard:
        """Returns the shard that has the key.  Raises Refused(NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS)."""
        if self._runtime.view().topics.get(self.topic) is None:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        return self.shard(self.partition_of(key))

    def shard(self, index: int) -> SomeShard:
        """Returns the shard of a partition.  Raises Refused as `find`."""
        shard = self._shards.get(index)
        if shard is None:
            is_loading = index in self._loading
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR)
        if not self._partitions[index].is_online:
            self.resign(index)
            raise Refused(ErrorCode.NOT_COORDINATOR)
        return shard

    # Coming and going.

    def adopt(self, partition: Partition, now: Moment) -> None:
        """Loads a partition of the topic that is led here from now on."""
        index = partition.topic_partition.partition
        self.resign(index)
        self._partitions[index] = partition
        self._load_all(partition, now)

    def _load_all(self, partition: Partition, now: Moment) -> None:
        index = partition.topic_partition.partition
        assert index not in self._shards, "a shard is loading or serving, never both"
        state = self._loading[index] = self._make(partition)
        self._load(partition, partition.log.start_offset, state, now)

    def _load(self, partition: Partition, start: Offset, state: SomeShard, now: Moment) -> None:
        log = partition.log
        load = Load(partition.topic_partition, [], log.end_offset, state)
        try:
            load.slices.extend(loading.slices_of(log, start, log.end_offset))
        except DiskFailed as failure:
            self.loaded(Loaded(load, failure), now)
            return
        if sum(one.size for one in load.slices) <= LOADED_AT_ONCE_BYTES:
            self.loaded(load.run(), now)
        else:
            self._ask(load)

    def loaded(self, loaded: Loaded, now: Moment) -> None:
        """Takes in the end of a Load."""
        load = loaded.load
        index = load.name.partition
        state = self._loading.get(index)
        if state is None or state is not load.state:
            return  # This broker resigned meanwhile.
        assert index not in self._shards, "a shard is loading or serving, never both"
        partition, failure = self._partitions[index], loaded.failure
        if failure is None and partition.is_online and partition.log.end_offset > load.end:
            self._load(partition, load.end, state, now)  # Markers of transactions were written meanwhile.
            return
        if isinstance(failure, DiskFailed) and failure.is_out_of_files:
            _LOG.warning("%s is loaded later: %s", load.name, failure)
            self._without_files.add(index)
            return
        del self._loading[index]
        if failure is not None:
            _LOG.error("%s can't be read, so nobody coordinates what is in it: %s", load.name, failure)
            return
        self._shards[index] = state
        state.begin(now)

    def resign(self, index: int) -> None:
        """Ends the shard of a partition that another broker leads now, or that is gone."""
        self._loading.pop(index, None)
        self._without_files.discard(index)
        self._rewritten.pop(index, None)
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.end()

    # Periodic tasks.

    def keep_house(self, now: Moment) -> None:
        """Loads shards that found no free descriptor, and rewrites logs that have grown far beyond their state."""
        again, self._without_files = self._without_files, set()
        for index in again:
            assert index in self._loading, "who waits for a descriptor is asked to come again, not sent away"
            if self._partitions[index].is_online:
                self._load_all(self._partitions[index], now)
            else:
                self.resign(index)
        for index, shard in list(self._shards.items()):
            assert index not in self._loading, "a shard is loading or serving, never both"
            partition = self._partitions[index]
            if partition.is_online:
                rewritten = self._rewritten.setdefault(index, _Rewritten())
                rewritten.go_on(partition, shard, now)


class _Rewritten:
    """The rewriting of one log: all of the state is written at its end, then the log is cut off before that."""

    __slots__ = ("_size", "_start", "_until")

    def __init__(self) -> None:
        self._start = Offset(0)
        self._until: Offset | None = None  # The end of what was written anew.
        self._size = 0  # The log's size after the last rewriting.

    def go_on(self, partition: Partition, shard: Shard, now: Moment) -> None:
        if self._until is not None:
            if partition.positions.high_watermark >= self._until:
                self._cut_off(partition, now)
        elif partition.log.size > max(REWRITTEN_FROM_BYTES, REWRITTEN_AT_TIMES * self._size):
            self._write(partition, shard, now)

    def _write(self, partition: Partition, shard: Shard, now: Moment) -> None:
        log = partition.log
        try:
            log.roll(now.wall)
            self._start = log.end_offset
            for some in _pieces(shard.records()):
                _put(shard, some, now, NOBODY)
            for producer_id, those in groupby(shard.pending(), itemgetter(0)):
                producer = ProducerIdAndEpoch(producer_id, log.producers.epoch_of(producer_id))
                for some in _pieces(record for _, record in those):
                    _put(shard, some, now, producer)
            self._until = log.end_offset
            assert self._start <= self._until, "what is written anew lies behind what is cut off"
        except (DiskFailed, Refused) as failure:  # What was written is right, but the log is longer than need be.
            _LOG.warning("%s could not be written anew: %s", partition.topic_partition, failure)
            self._size = log.size  # Not tried every second: each time would make the log longer.

    def _cut_off(self, partition: Partition, now: Moment) -> None:
        log = partition.log
        assert self._start <= partition.positions.high_watermark, "what stays is safe before what it replaces goes"
        self._until = None
        try:
            log.advance_start(self._start)
            log.delete_old_segments(now.wall, partition.positions.high_watermark)
        except DiskFailed as failure:
            _LOG.warning("%s could not be cut off: %s", partition.topic_partition, failure)
        self._size = log.size


def _put(shard: Shard, records: list[StateRecord], now: Moment, producer: ProducerIdAndEpoch) -> None:
    """Writes records in as many batches as it takes.  Raises Refused."""
    try:
        shard.write_only(records, now, producer)
    except Refused as refused:
        middle = len(records) // 2
        if refused.code is not TOO_LARGE or not middle:
            raise
        _put(shard, records[:middle], now, producer)
        _put(shard, records[middle:], now, producer)


def _pieces(records: Iterable[StateRecord]) -> Iterator[list[StateRecord]]:
    piece: list[StateRecord] = []
    for record in records:
        piece.append(record)
        if len(piece) >= RECORDS_PER_BATCH:
            yield piece
            piece = []
    if piece:
        yield piece
