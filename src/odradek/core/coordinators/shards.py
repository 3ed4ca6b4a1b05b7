"""The shards of one coordinator: for each partition of its state topic that is led here, the state that lies in it.

    partition opened ──> small log: loaded at once
                    └──> large log: Load, an effect ──> loaded beside the loop ──> installed
    meanwhile COORDINATOR_LOAD_IN_PROGRESS; on any other broker NOT_COORDINATOR

A log that has grown far beyond the state in it is compacted, before the cleaner would come to it by its dirty ratio: it
is read as a whole when the partition is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import MIB, BrokerId, Offset, TopicName, TopicPartition
from odradek.core.coordinators import shard_loading as loading
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.state_topics import partition_for
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading
from odradek.log.files.disk import DiskFailed, FileSlice
from odradek.log.log.log import Log

_LOG = logging.getLogger(__name__)

LOADED_AT_ONCE_BYTES = 256 * 1024
# Less would be little to read, and many small files to sync.
COMPACTED_FROM_BYTES = 2 * MIB
COMPACTED_AT_TIMES = 4


class Shard(loading.Replayed, Protocol):
    """The state of one partition of a state topic."""

    def begin(self, now: Moment) -> None:
        """Starts the loaded shard: sets timers, finishes what a crash interrupted."""

    def end(self) -> None:
        """Ends the shard, which moved to another broker or lost its log: cancels timers, answers waiting requests."""


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
        self, topic: TopicName, make: Callable[[Leading], SomeShard], ask: Callable[[Load], None], runtime: Runtime
    ) -> None:
        """`ask` has the shell carry out a Load."""
        self.topic = topic
        self._make = make
        self._ask = ask
        self._runtime = runtime
        self._shards: dict[int, SomeShard] = {}
        self._loading: dict[int, SomeShard] = {}
        self._led: dict[int, Leading] = {}
        self._growths: dict[int, _Growth] = {}
        self._without_files: set[int] = set()  # Partitions that were to be loaded when no descriptor was free.

    def __iter__(self) -> Iterator[SomeShard]:
        return iter(list(self._shards.values()))

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def elsewhere(self, key: str) -> BrokerId | None:
        """Returns the broker that coordinates the key, which may be NO_BROKER; None if it is this one.

        Also None if there is no state topic: then it is found out here that nobody does.
        """
        view = self._runtime.view()
        topic = view.topics.get(self.topic) if len(view.brokers) > 1 else None
        if topic is None:
            return None
        index = partition_for(key, len(topic.partitions))
        leader, leading = topic.partitions[index].leader, self._led.get(index)
        is_here = leader == self._runtime.broker_id or (leading is not None and leading.ended is None)
        return None if is_here else leader

    def leading(self, key: str) -> Leading | None:
        """Returns the leadership of the partition that has the key; None if another broker leads it."""
        topic = self._runtime.view().topics.get(self.topic)
        return None if topic is None else self._led.get(partition_for(key, len(topic.partitions)))

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
        if self._led[index].ended is not None:
            self.resign(index)
            raise Refused(ErrorCode.NOT_COORDINATOR)
        return shard

    # Coming and going.

    def adopt(self, leading: Leading, now: Moment) -> None:
        """Loads a partition of the topic that is led here from now on; one that is led already goes on as it is."""
        index = leading.name.partition
        if self._led.get(index) is leading:
            return
        self.resign(index)
        self._led[index] = leading
        self._load_all(leading, now)

    def _load_all(self, leading: Leading, now: Moment) -> None:
        index = leading.name.partition
        assert index not in self._shards, "a shard is loading or serving, never both"
        state = self._loading[index] = self._make(leading)
        self._load(leading, leading.log.start_offset, state, now)

    def _load(self, leading: Leading, start: Offset, state: SomeShard, now: Moment) -> None:
        log = leading.log
        load = Load(leading.name, [], log.end_offset, state)
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
        leading, failure = self._led[index], loaded.failure
        if failure is None and leading.ended is None and leading.log.end_offset > load.end:
            self._load(leading, load.end, state, now)  # Markers of transactions were written meanwhile.
            return
        if isinstance(failure, DiskFailed) and failure.is_out_of_files:
            _LOG.warning("%s is loaded later: %s", load.name, failure)
            self._without_files.add(index)
            return
        del self._loading[index]
        if failure is not None:
            _LOG.error("%s can't be read, so nobody coordinates what is in it: %s", load.name, failure)
            del self._led[index]
            return
        self._shards[index] = state
        state.begin(now)

    def resign(self, index: int) -> None:
        """Ends the shard of a partition that another broker leads now, or that is gone."""
        self._led.pop(index, None)
        self._loading.pop(index, None)
        self._without_files.discard(index)
        self._growths.pop(index, None)
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.end()

    # Periodic tasks.

    def keep_house(self, now: Moment) -> None:
        """Loads shards that found no free descriptor, and has logs compacted that have grown far beyond their state."""
        again, self._without_files = self._without_files, set()
        for index in again:
            assert index in self._loading, "who waits for a descriptor is asked to come again, not sent away"
            if self._led[index].ended is None:
                self._load_all(self._led[index], now)
            else:
                self.resign(index)
        for index in self._shards:
            assert index not in self._loading, "a shard is loading or serving, never both"
            leading = self._led[index]
            if leading.ended is None and self._is_overgrown(index, leading.log):
                self._runtime.compact(leading.partition)

    def _is_overgrown(self, index: int, log: Log) -> bool:
        growth = self._growths.get(index)
        if growth is None:
            growth = self._growths[index] = _Growth(log)
        return growth.is_too_much(log)


class _Growth:
    """How large one log may become before it is compacted, in bytes."""

    __slots__ = ("_cleaned_to", "_limit")

    def __init__(self, log: Log) -> None:
        self._cleaned_to = log.compaction.cleaned_to
        self._limit = COMPACTED_FROM_BYTES

    def is_too_much(self, log: Log) -> bool:
        """True if the log is to be compacted, which is said once; again if nothing came of it and it has doubled."""
        if log.compaction.cleaned_to != self._cleaned_to:
            self._cleaned_to = log.compaction.cleaned_to
            # Without what was written since the pass began.
            compacted = sum(segment.size for segment in log.segments if segment.base_offset < log.compaction.cleaned_to)
            self._limit = max(COMPACTED_FROM_BYTES, COMPACTED_AT_TIMES * compacted)
        if log.size <= self._limit:
            return False
        self._limit = 2 * log.size
        return True
