"""A client that requests compaction now and then, like `odradek topic compact`, and once more after all writes."""

from __future__ import annotations

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.wire.messages.compact_partitions import (
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactPartitionsTopic,
)
from sim.simclock import MILLISECOND_US, SECOND_US
from sim.simsteps import RETRIABLE, SimSteps, Steps

PAUSE_US = (100 * MILLISECOND_US, 8 * SECOND_US)
TIMEOUTS_MS = (0, 200, 5_000)
RIGHT = (ErrorCode.NONE, *RETRIABLE)


class SimCompactor(SimSteps):
    """The client; done when each partition of each topic is compacted as far as possible."""

    def live(self) -> Steps[None]:
        partitions = [name for topic in self.environment.topics for name in self.environment.partitions(topic)]
        yield self.pause(PAUSE_US)
        while not self.is_draining:
            yield from self._compact(self.random.choice(partitions), self.random.choice(TIMEOUTS_MS))
            yield self.pause(PAUSE_US)
        for name in partitions:
            while not (yield from self._compact(name, max(TIMEOUTS_MS))):
                yield self.pause(PAUSE_US)

    def _compact(self, name: TopicPartition, timeout_ms: int) -> Steps[bool]:
        """Request compaction; return True if the partition is compacted, and note its end in the history."""
        topic = CompactPartitionsTopic(name=name.topic, partitions=[name.partition])
        request = CompactPartitionsRequest(topics=[topic], timeout_ms=timeout_ms)
        self.add_event("compact", str(name))
        response: CompactPartitionsResponse | None = yield self.request(request, 0, CompactPartitionsResponse)
        if response is None:
            return False
        result = response.topics[0].partitions[0]
        code = ErrorCode(result.error_code)
        assert code in RIGHT, f"{name} can't be compacted: {code.name} {result.error_message}"
        if code is not ErrorCode.NONE:
            self.add_event("not yet", f"{name} {code.name}")
            return False
        held_back = "" if result.held_back_by is None else f", because of {result.held_back_by}"
        removed = f"{result.removed_records} records went{held_back}"
        self.add_event("compacted", f"{name} to {result.compacted_to}: {removed}")
        self.history.compacted_to[name] = result.compacted_to
        return True
