"""The shards of one coordinator: the state in each partition of its state topic that is led here.

    partition opened ──> small log: loaded at once
                    └──> large log: Load, an effect ──> loaded in a thread ──> installed
    until then COORDINATOR_LOAD_IN_PROGRESS; on any other broker NOT_COORDINATOR

Loading a partition reads its whole log. So a log much larger than its state is compacted before the cleaner selects
it by its dirty ratio.
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
# A smaller log is quick to read, and compaction would sync many small files.
COMPACTED_FROM_BYTES = 2 * MIB
COMPACTED_AT_TIMES = 4


class Shard(loading.CoordinatorPlayback, Protocol):
    """The state of one partition of a state topic."""

    def on_loaded(self, now: Moment) -> None:
        """Start the loaded shard: set timers and finish work interrupted by a crash."""

    def on_unloaded(self) -> None:
        """End the shard, which moved to another broker or lost its log.

        Cancels timers and answers waiting requests.
        """


SomeShard = TypeVar("SomeShard", bound=Shard)


class Load(NamedTuple):
    """An effect: build a shard's state from its log below `end`, in a thread, which ends in a Loaded."""

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
    """The outcome of a Load."""

    load: Load
    failure: DiskFailed | Refused | None


class Shards(Generic[SomeShard]):
    """The shards of one state topic on this broker."""

    def __init__(
        self,
        topic: TopicName,
        make: Callable[[Leading], SomeShard],
        request_load: Callable[[Load], None],
        runtime: Runtime,
    ) -> None:
        """Create the shards; `request_load` requests a Load from the shell."""
        self.topic = topic
        self._make = make
        self._request_load = request_load
        self._runtime = runtime
        self._shards: dict[int, SomeShard] = {}
        self._loading: dict[int, SomeShard] = {}
        self._led: dict[int, Leading] = {}
        self._growths: dict[int, _CompactionThreshold] = {}
        self._awaiting_descriptor: set[int] = set()  # Partitions whose load failed for lack of a file descriptor.

    def __iter__(self) -> Iterator[SomeShard]:
        return iter(list(self._shards.values()))

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def elsewhere(self, key: str) -> BrokerId | None:
        """Return the broker that coordinates the key, possibly NO_BROKER, or None if it is this one.

        Also returns None without a state topic; the missing coordinator is then detected here.
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
        """Return the leadership of the key's partition, or None if another broker leads it."""
        topic = self._runtime.view().topics.get(self.topic)
        return None if topic is None else self._led.get(partition_for(key, len(topic.partitions)))

    def partition_of(self, key: str) -> int:
        """Return the key's partition; Refused(COORDINATOR_NOT_AVAILABLE) without a state topic."""
        topic = self._runtime.view().topics.get(self.topic)
        if topic is None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topic {self.topic} does not exist yet")
        return partition_for(key, len(topic.partitions))

    def find_shard(self, key: str) -> SomeShard:
        """Return the key's shard, or raise Refused(NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS)."""
        if self._runtime.view().topics.get(self.topic) is None:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        return self.shard(self.partition_of(key))

    def shard(self, index: int) -> SomeShard:
        """Return the shard of a partition, or raise Refused as `find_shard` does."""
        shard = self._shards.get(index)
        if shard is None:
            is_loading = index in self._loading
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR)
        if self._led[index].ended is not None:
            self.resign(index)
            raise Refused(ErrorCode.NOT_COORDINATOR)
        return shard

    # Leadership changes.

    def adopt(self, leading: Leading, now: Moment) -> None:
        """Load a partition of the topic that is now led here; an unchanged leadership is ignored."""
        index = leading.name.partition
        known = self._led.get(index)
        if known is leading:
            return
        assert known is None or known.ended is not None, "a leadership ends before the next one of its partition begins"
        self.resign(index)
        self._led[index] = leading
        self._load_all(leading, now)
        self._check(index)

    def _load_all(self, leading: Leading, now: Moment) -> None:
        index = leading.name.partition
        assert index not in self._shards, "a shard is either loading or serving"
        assert index not in self._awaiting_descriptor
        state = self._loading[index] = self._make(leading)
        self._load(leading, leading.log.start_offset, state, now)

    def _load(self, leading: Leading, start: Offset, state: SomeShard, now: Moment) -> None:
        log = leading.log
        assert log.start_offset <= start <= log.end_offset
        load = Load(leading.name, [], log.end_offset, state)
        try:
            load.slices.extend(loading.slices_of(log, start, log.end_offset))
        except DiskFailed as failure:
            self.on_loaded(Loaded(load, failure), now)
            return
        if sum(slice_.size for slice_ in load.slices) <= LOADED_AT_ONCE_BYTES:
            self.on_loaded(load.run(), now)
        else:
            self._request_load(load)

    def on_loaded(self, loaded: Loaded, now: Moment) -> None:
        """Process the outcome of a Load."""
        load = loaded.load
        index = load.name.partition
        state = self._loading.get(index)
        if state is None or state is not load.state:
            return  # This broker has resigned since.
        self._check(index)
        leading, failure = self._led[index], loaded.failure
        if failure is None and leading.ended is None and leading.log.end_offset > load.end:
            # Transaction markers were written during the load; retention may have deleted some of them.
            self._load(leading, max(load.end, leading.log.start_offset), state, now)
            return
        if isinstance(failure, DiskFailed) and failure.is_out_of_files:
            _LOG.warning("failed to load %s (will retry): %s", load.name, failure)
            self._awaiting_descriptor.add(index)
            return
        del self._loading[index]
        if failure is not None:
            _LOG.error("failed to load %s, its groups or transactions have no coordinator: %s", load.name, failure)
            del self._led[index]
            self._check(index)
            return
        if leading.ended is not None:
            self.resign(index)  # Another request has found the disk failed.
            return
        self._shards[index] = state
        self._check(index)
        state.on_loaded(now)

    def resign(self, index: int) -> None:
        """End the shard of a partition that is deleted or now led by another broker."""
        self._led.pop(index, None)
        self._loading.pop(index, None)
        self._awaiting_descriptor.discard(index)
        self._growths.pop(index, None)
        shard = self._shards.pop(index, None)
        self._check(index)
        if shard is not None:
            shard.on_unloaded()

    def _check(self, index: int) -> None:
        """Check that a partition is led here exactly if its shard is either loading or serving."""
        is_loading, is_serving = index in self._loading, index in self._shards
        assert not (is_loading and is_serving), "a shard is either loading or serving"
        assert (index in self._led) == (is_loading or is_serving)
        assert is_loading or index not in self._awaiting_descriptor
        assert is_serving or index not in self._growths

    # Periodic tasks.

    def run_housekeeping(self, now: Moment) -> None:
        """Load shards that found no free descriptor, and compact logs much larger than their state."""
        retried, self._awaiting_descriptor = self._awaiting_descriptor, set()
        for index in retried:
            self._check(index)
            assert index in self._loading, "a shard that waits for a file descriptor is still loading"
            if self._led[index].ended is None:
                self._load_all(self._led[index], now)
            else:
                self.resign(index)
        for index in self._shards:
            self._check(index)
            leading = self._led[index]
            if leading.ended is None and self._is_overgrown(index, leading.log):
                self._runtime.compact(leading.name)

    def _is_overgrown(self, index: int, log: Log) -> bool:
        growth = self._growths.get(index)
        if growth is None:
            growth = self._growths[index] = _CompactionThreshold(log)
        return growth.must_compact(log)


class _CompactionThreshold:
    """The size in bytes at which one log is compacted."""

    __slots__ = ("_cleaned_to", "_limit")

    def __init__(self, log: Log) -> None:
        self._cleaned_to = log.compaction.cleaned_to
        self._limit = COMPACTED_FROM_BYTES

    def must_compact(self, log: Log) -> bool:
        """Return whether the log must be compacted now.

        Returns True once, and again only if compaction had no effect and the log has doubled.
        """
        if log.compaction.cleaned_to != self._cleaned_to:
            self._cleaned_to = log.compaction.cleaned_to
            # Excludes data written since the pass began.
            compacted = sum(segment.size for segment in log.segments if segment.base_offset < log.compaction.cleaned_to)
            self._limit = max(COMPACTED_FROM_BYTES, COMPACTED_AT_TIMES * compacted)
        if log.size <= self._limit:
            return False
        assert self._limit >= COMPACTED_FROM_BYTES
        self._limit = 2 * log.size
        return True
