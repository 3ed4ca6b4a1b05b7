"""A consumer of all partitions of some topics from the beginning, which keeps track of its positions itself."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from sim.history import Seen, Value
from sim.simclients import Environment, SimClient
from sim.simclock import MILLISECOND_US, SimNode
from sim.simfetching import SimFetcher

PAUSE_US = (0, 60 * MILLISECOND_US)
NOT_AVAILABLE = (ErrorCode.OFFSET_OUT_OF_RANGE,)


class SimConsumer(SimClient):
    """A consumer that reads continuously; when it drains, up to the high watermark of each partition.

    A position beyond the log end results from records lost in a power failure: the consumer then starts again from
    the end.
    """

    def __init__(
        self,
        name: str,
        node: SimNode,
        environment: Environment,
        topics: Sequence[TopicName],
        *,
        is_final: bool = False,
        read_committed: bool = False,
    ) -> None:
        super().__init__(name, node, environment)
        self._topics = list(topics)
        self.partitions = [partition for topic in topics for partition in environment.partitions(topic)]
        self._is_final = is_final
        self.is_draining = is_final
        self.fetcher = SimFetcher(self, self._read, self._refused, read_committed=read_committed)
        self._has_topics = False
        self._ended = False
        self._reached: set[TopicPartition] = set()
        self._last: dict[TopicPartition, int] = {}

    @property
    def is_done(self) -> bool:
        return self._ended

    def drain(self) -> None:
        """Drain, and forget the known high watermarks, which may be outdated."""
        self._reached.clear()
        super().drain()

    def pump(self) -> None:
        if self.fetcher.is_under_way or self._ended:
            return
        if not self._has_topics:
            self.find_topics(self._topics, self._found)
            return
        wait_ms = 100 if self.is_draining else self.random.choice((0, 100, 500))
        self.fetcher.fetch(self._fetched, wait_ms)

    def _found(self, exist: bool) -> None:
        if exist and not self._has_topics:
            self._has_topics = True
            if self._is_final:
                self._final().update({partition: [] for partition in self.partitions})
            self.fetcher.assign(dict.fromkeys(self.partitions, 0))
        self.again()

    def _fetched(self, was_answered: bool) -> None:
        if not was_answered:
            self.again()
            return
        marks, positions = self.fetcher.high_watermarks, self.fetcher.positions
        # A consumer at the end receives no more updates of a partition: the last ones remain valid.
        self._reached = {name for name in positions if name in marks and positions[name] >= marks[name]}
        if self.is_draining and len(self._reached) == len(self.partitions) and self._has_nothing_new():
            self._ended = True
            self.add_event("drained", " ".join(f"{name}@{offset}" for name, offset in positions.items()))
            self.link.leave()
            return
        self.node.after(self.random.randrange(*PAUSE_US), self.pump)

    def _has_nothing_new(self) -> bool:
        """Return True after a second fetch without news: in a session, an empty response means that nothing is new."""
        if self._is_final:
            return True
        positions = dict(self.fetcher.positions)
        is_same, self._last = self._last == positions, positions
        return is_same

    def _final(self) -> dict[TopicPartition, list[Seen]]:
        return self.history.committed if self.name in self.history.read_committed_readers else self.history.final

    def _read(self, partition: TopicPartition, offset: int, value: Value) -> None:
        history = self.history
        seen = Seen(self.name, self.fetcher.era, self.environment.clock.now_us, partition, offset, value)
        if self._is_final:
            self._final()[partition].append(seen)
        else:
            history.seen.append(seen)
        self.add_event("read", f"{partition}@{offset} {value}")

    def _refused(self, partition: TopicPartition, code: ErrorCode) -> None:
        self.add_event("refused", f"{partition} {code.name}")
        if code in NOT_AVAILABLE:
            self.fetcher.seek(partition, 0)
