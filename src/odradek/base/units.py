"""A separate type for every kind of number, so that an offset is never passed as an epoch.

All are plain ints (or bytes) at run time. Times are milliseconds since the Unix epoch unless a name specifies
otherwise.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
TimestampMs = NewType("TimestampMs", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TopicName = NewType("TopicName", str)
CorrelationId = NewType("CorrelationId", int)

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

INT8_MAX = (1 << 7) - 1
INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

NO_OFFSET = Offset(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = TimestampMs(-1)
NO_BROKER = BrokerId(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic; its text is the name of its directory."""

    topic: TopicName
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
