"""Topics that are compacted while they are filled, one for each codec, with everything that a cleaner may leave.

This includes gaps of all sizes, tombstones with their delete horizon, committed and aborted transactions with few
records left, and empty batches, which keep the last sequence of a producer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from contents import CODECS, COMPACT, QUIET, SECONDS_MAX, admin, read, send, transactional, until

from support.golden import Record

ROUNDS = 7  # The last transaction is aborted, so its last batch stays, and an entry in the index of such.
KEYS = 40
BATCH = 8  # Records.
VALUE_BYTES = 200
SEGMENT_BYTES = "6000"
LAST = b"last"


def table_of(codec: str) -> str:
    return f"table.{codec}"


def tables(codecs: Sequence[str] = CODECS, *, is_modern: bool = True) -> dict[str, tuple[int, dict[str, str]]]:
    """Return the topics for contents.create_topics: 4.x has another config key for small segments."""
    size = {"internal.segment.bytes" if is_modern else "segment.bytes": SEGMENT_BYTES, "index.interval.bytes": "500"}
    return {table_of(codec): (1, COMPACT | size) for codec in codecs}


def fill_tables(address: str, codecs: Sequence[str] = CODECS) -> None:
    """Write to the tables; return when all have been compacted up to their last records."""
    for codec in codecs:
        _fill(address, table_of(codec), codec)
    _await_compaction(address, codecs)


def _fill(address: str, topic: str, codec: str) -> None:
    settings = {"compression.type": codec, "linger.ms": 1000, "enable.idempotence": True}
    overwritten = Producer({"bootstrap.servers": address} | QUIET | settings)
    # This batch becomes empty, and keeps the largest timestamp of its segment.
    later = time.time_ns() // 1_000_000 + 20_000
    _send(overwritten, topic, {b"k%d" % key: b"overwritten" for key in range(BATCH)}, later)
    plain = Producer({"bootstrap.servers": address} | QUIET | settings)
    sender = transactional(address, f"on {topic}")
    random = Random(topic)
    for number in range(ROUNDS):
        _send(plain, topic, {b"k%d" % key: random.randbytes(VALUE_BYTES) for key in range(number, KEYS)})
        _send(plain, topic, {b"gone %d" % key: None if number % 2 else b"there" for key in range(number, 10)})
        sender.begin_transaction()
        _send(sender, topic, {b"t%d" % key: random.randbytes(VALUE_BYTES) for key in range(number, 10)})
        _send(plain, topic, {b"between": b"%d" % number})
        sender.commit_transaction(SECONDS_MAX) if number % 3 else sender.abort_transaction(SECONDS_MAX)


def _send(producer: Producer, topic: str, records: dict[bytes, bytes | None], timestamp: int = 0) -> None:
    """Send the records in batches; timestamp 0 means now."""
    for number, (key, value) in enumerate(records.items(), 1):
        producer.produce(topic, value, key, timestamp=timestamp)
        if number % BATCH == 0:
            assert producer.flush(SECONDS_MAX) == 0
    assert producer.flush(SECONDS_MAX) == 0


def _await_compaction(address: str, codecs: Sequence[str]) -> None:
    """Roll the active segments by record timestamps, and wait until each key is present once."""
    producer = Producer({"bootstrap.servers": address} | QUIET)
    soon = time.time_ns() // 1_000_000 + 5_000
    for codec in codecs:
        producer.produce(table_of(codec), b"last", LAST, timestamp=soon)
    assert producer.flush(SECONDS_MAX) == 0
    # Aborted records count, too, until they are removed.
    until(lambda: all(is_clean(records) for records in read_tables(address, codecs, "read_uncommitted").values()))


def read_tables(
    address: str, codecs: Sequence[str] = CODECS, isolation: str = "read_committed"
) -> dict[str, list[Record]]:
    return read(address, [TopicPartition(table_of(codec), 0) for codec in codecs], isolation)


def is_clean(records: Sequence[Record]) -> bool:
    keys = [record[3] for record in records]
    return len(set(keys)) == len(keys)


def last_values(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    last = {record[3]: record[4] for record in records}
    return {key: value for key, value in last.items() if value is not None}


# Several values of a key, and their compaction.


def set_policies(address: str, policies: Mapping[str, str]) -> None:
    resources = [
        ConfigResource(
            ConfigResource.Type.TOPIC,
            topic,
            incremental_configs=[ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)],
        )
        for topic, policy in policies.items()
    ]
    client = admin(address)
    for altered in client.incremental_alter_configs(resources).values():
        altered.result(SECONDS_MAX)


def write_values(address: str, *topics: str, number: int) -> None:
    """Write three values of one key to each topic, and then a record that rolls the segment."""
    now = time.time_ns() // 1_000_000
    for topic in topics:
        send(address, topic, [(b"k", b"%d%d" % (number, again), now) for again in range(3)])
        send(address, topic, [(b"end", b"%d" % number, now + 20_000 * number)])


def values(address: str, topic: str) -> list[bytes | None]:
    """Return the present values of the key of `write_values`."""
    (records,) = read(address, [TopicPartition(topic, 0)], "read_uncommitted").values()
    return [record[4] for record in records if record[3] == b"k"]
