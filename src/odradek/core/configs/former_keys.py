"""Keys of earlier Kafka releases that were renamed or removed, with their replacements.

    log.cleanup.interval.mins  (0.7 to 0.8.1)  ──>  log.retention.check.interval.ms

A renamed key stops the start with its successor in the error, because its value would otherwise be ignored silently.  A
removed key only causes a warning, like every unknown name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_OF_TOPICS = "Set it for each topic"

# Names since Kafka 0.8 or later, with other changes.
RENAMED: Mapping[str, str] = MappingProxyType(
    {
        # 0.7
        "brokerid": "Use 'broker.id'.",
        "hostname": "Use 'listeners', for example listeners=PLAINTEXT://HOST:9092.",
        "log.default.flush.interval.ms": "Use 'log.flush.interval.ms'.",
        "log.default.flush.scheduler.interval.ms": "Use 'log.flush.scheduler.interval.ms'.",
        "log.file.size": "Use 'log.segment.bytes'.",
        "log.flush.interval": "Use 'log.flush.interval.messages'.",
        "log.retention.size": "Use 'log.retention.bytes'.",
        "max.message.size": "Use 'message.max.bytes'.",
        "max.socket.request.bytes": "Use 'socket.request.max.bytes'.",
        "num.threads": "Use 'num.io.threads'.",
        "socket.receive.buffer": "Use 'socket.receive.buffer.bytes'.",
        "socket.send.buffer": "Use 'socket.send.buffer.bytes'.",
        "topic.flush.intervals.ms": f"{_OF_TOPICS}: odradek topic config TOPIC --set flush.ms=MS.",
        "topic.log.retention.hours": f"{_OF_TOPICS}: odradek topic config TOPIC --set retention.ms=MS.",
        "topic.partition.count.map": "Create each topic with its number: odradek topic create TOPIC --partitions N.",
        "zk.connect": "Use 'zookeeper.connect'.",
        "zk.connectiontimeout.ms": "Use 'zookeeper.connection.timeout.ms'.",
        "zk.sessiontimeout.ms": "Use 'zookeeper.session.timeout.ms'.",
        "zk.synctime.ms": "Use 'zookeeper.sync.time.ms'.",
        # 0.8
        "auto.create.topics": "Use 'auto.create.topics.enable'.",
        "log.cleanup.interval.mins": "Use 'log.retention.check.interval.ms', in milliseconds: 1 minute is 60000.",
        "log.delete.delay.ms": "Use 'log.segment.delete.delay.ms'.",
        "log.flush.interval.ms.per.topic": f"{_OF_TOPICS}: odradek topic config TOPIC --set flush.ms=MS.",
        "log.retention.bytes.per.topic": f"{_OF_TOPICS}: odradek topic config TOPIC --set retention.bytes=BYTES.",
        "log.retention.hours.per.topic": f"{_OF_TOPICS}: odradek topic config TOPIC --set retention.ms=MS.",
        "log.roll.hours.per.topic": f"{_OF_TOPICS}: odradek topic config TOPIC --set segment.ms=MS.",
        "log.segment.bytes.per.topic": f"{_OF_TOPICS}: odradek topic config TOPIC --set segment.bytes=BYTES.",
    }
)

# Keys without a successor: they cause a warning, as in the Kafka releases without them.
REMOVED = frozenset(
    {
        "controller.message.queue.size",  # 0.8
        "enable.zookeeper",  # 0.7
        "monitoring.period.secs",  # 0.7
        "replica.lag.max.messages",  # 0.8; since then replica.lag.time.max.ms alone defines the ISR.
    }
)
