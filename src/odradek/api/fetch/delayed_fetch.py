"""A fetch that waits for enough data: a delayed fetch in Kafka's purgatory.

The purgatory is core/kernel/purgatory.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import cast

from odradek.api.fetch.fetch_read import FetchRead
from odradek.api.fetch.fetch_response import Read, size_of
from odradek.api.request.sliced_response import Parts
from odradek.core.fetch.fetch_sessions import CachedPartition
from odradek.core.partition.partition import Partition
from odradek.wire.messages.fetch import PartitionData


class DelayedFetch:
    """The condition of a delayed fetch: enough bytes or an error in partitions changed since the read.

    An incremental fetch is notified of every partition of its session. It watches the partitions that were read and are
    still due.
    """

    def __init__(self, fetch: FetchRead) -> None:
        self._fetch = fetch
        self._session = fetch.session
        self._named: dict[Hashable, CachedPartition] = {}
        self._sizes: dict[CachedPartition, int] = {}
        self._total = 0
        self._read: list[tuple[CachedPartition, Partition | None, PartitionData]] = []

    def watch(self, read: Read) -> Parts[DelayedFetch]:
        """Start watching the partitions that were read, from the state found in them."""
        self._fetch.waits()
        for cached_partition, data in read:
            partition = self._fetch.partition(cached_partition)
            if partition is not None:
                self._watch(cached_partition, partition)
            self._sizes[cached_partition] = size = size_of(data)
            self._total += size
            self._read.append((cached_partition, partition, data))
            yield
        return self

    def _watch(self, cached_partition: CachedPartition, partition: Partition) -> None:
        if self._session is None:
            self._named.update(dict.fromkeys(self._fetch.params.keys(partition), cached_partition))
        elif cached_partition.session is self._session:
            cached_partition.watch(self._fetch.params.watchers(partition))

    @property
    def keys(self) -> Iterable[Hashable]:
        return self._named if self._session is None else (self._session,)

    def recheck(self) -> bool:
        """Read partitions changed while other requests ran; return whether the fetch can be answered now."""
        read, self._read = self._read, []
        for cached_partition, partition, data in read:
            has_changed = (
                partition is None
                or self._fetch.params.has_changed(partition, cached_partition, data)
                or self._fetch.partition(cached_partition) is not partition
            )
            if has_changed and self._recheck_partition(cached_partition):
                return True
        session = self._session
        if session is None:
            return False
        due_again = [cached_partition for cached_partition in session.due if cached_partition not in self._sizes]
        return not session.is_open or any(map(self._recheck_partition, due_again))

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        if self._session is None:
            return self._recheck_partition(self._named[key])
        return news is None or self._recheck_partition(cast(CachedPartition, news))  # None: the session is over.

    def _recheck_partition(self, cached_partition: CachedPartition) -> bool:
        """Recount the partition's available bytes; return whether the fetch can be answered now."""
        partition = self._fetch.partition(cached_partition)
        if partition is not None:
            if self._fetch.is_served_by_any(partition, cached_partition):
                return True
            self._watch(cached_partition, partition)
        size = self._fetch.available(cached_partition)
        if size is None:
            return True
        self._total += size - self._sizes.get(cached_partition, 0)
        self._sizes[cached_partition] = size
        return self._total >= self._fetch.min_bytes
