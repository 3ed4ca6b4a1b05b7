"""All kinds of contents of a broker's data directory, written by clients, and their view of it.

`fill` leaves one transaction open, like a killed producer. `found` is compared between two brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.golden import Found, Record

SECONDS_MAX = 60
T0 = 1_700_000_000_000
NOW = time.time_ns() // 1_000_000
NUMBERED = 60  # Records of one idempotent producer in "segments", each in its own batch.
DAY_MS = 86_400_000
SENDER, OPEN = "sender", "left-open"  # Transactional ids.
READERS, CLASSIC, MODERN, IN_TRANSACTIONS = "readers", "classic-group", "modern-group", "in-transactions"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Records are years old, and must be kept; compaction runs soon, and keeps the oldest tombstones.
KEPT = {"retention.ms": "-1"}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
    "delete.retention.ms": str(DAY_MS),
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "every.codec": (2, KEPT),
    "segments": (1, KEPT | {"segment.bytes": "2000", "index.interval.bytes": "200"}),
    "transactions": (1, KEPT),
    "compacted": (1, COMPACT),
    "compacted_transactions": (1, COMPACT),
    "both": (1, COMPACT | KEPT | {"cleanup.policy": "compact,delete"}),
    "cut": (1, KEPT),
    "stamped": (1, KEPT | {"message.timestamp.type": "LogAppendTime"}),
    "empty": (3, KEPT),
}
# A broker that compacts has these: a topic's dirty part must have been long enough in a sealed segment.
CLEANER = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": str(4 << 20)}

Sent = tuple[bytes | None, bytes | None, int]
QUIET = {"log_level": 0}


def partitions() -> Iterator[TopicPartition]:
    for name, (count, _) in TOPICS.items():
        for number in range(count):
            yield TopicPartition(name, number)


def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address} | QUIET)


def create_topics(address: str, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    new = [NewTopic(name, count, 1, config=dict(configs)) for name, (count, configs) in topics.items()]
    creating = admin(address)  # Its futures end with it.
    for future in creating.create_topics(new).values():
        future.result(SECONDS_MAX)


def configs_for(version: str) -> dict[str, tuple[int, Mapping[str, str]]]:
    """Return TOPICS with configs supported by a version: 4.x has another key for small segments."""
    if not version.startswith("4"):
        return dict(TOPICS)
    renamed = {"segment.bytes": "internal.segment.bytes"}
    return {
        name: (count, {renamed.get(key, key): value for key, value in configs.items()})
        for name, (count, configs) in TOPICS.items()
    }


def fill(address: str, *, codecs: tuple[str, ...] = CODECS, modern_group: bool = False) -> Producer:
    """Write all contents. Return the producer with an open transaction, which ends once the producer is deleted."""
    _fill_codecs(address, codecs)
    keyed: list[Sent] = [(b"k%d" % (n % 5), b"%d" % n, T0 + n) for n in range(30)]
    keyed += [(b"k1", None, T0 + 40), (b"k9", None, T0 + 41)]
    sent: dict[str, list[Sent]] = {
        # The current time, since a producer expires a day after its last record.
        "segments": [(b"k%d" % n, b"s" * (n * 7 % 300), NOW + n * 100) for n in range(NUMBERED)],
        "cut": [(None, b"c%d" % n, T0 + n) for n in range(8)],
        "compacted": keyed,
        "both": keyed,
    }
    one_by_one(address, sent)
    deleting = admin(address)
    for deleted in deleting.delete_records([TopicPartition("cut", 0, 5)]).values():
        deleted.result(SECONDS_MAX)
    send(address, "stamped", [(b"k", b"%d" % n, T0) for n in range(4)])
    sender = transactional(address, SENDER)
    for number in range(6):
        sender.begin_transaction()
        for topic in ("transactions", "compacted_transactions"):
            sender.produce(topic, b"t%d" % number, b"k%d" % (number % 2), partition=0, timestamp=T0 + number)
        _send_offset(address, sender, 10 + number)
        sender.commit_transaction(SECONDS_MAX) if number % 3 else sender.abort_transaction(SECONDS_MAX)
    _commit_offsets(address, modern_group)
    opened = transactional(address, OPEN)
    opened.begin_transaction()
    for number in range(3):
        opened.produce("transactions", b"open %d" % number, partition=0, timestamp=T0 + 100 + number)
    _send_offset(address, opened, 99)
    assert opened.flush(SECONDS_MAX) == 0
    send(address, "transactions", [(None, b"behind it", T0 + 200)])
    return opened


def _fill_codecs(address: str, codecs: tuple[str, ...]) -> None:
    for number, codec in enumerate(codecs):
        records: list[Sent] = [(b"k%d" % i, b"value " * 50, T0 + number * 1000 + i) for i in range(5)]
        send(address, "every.codec", records, codec, (0, 1))
    send(address, "every.codec", [(None, b"", T0), (b"", None, T0 + 1), (b"\xff", b"\0", T0)])
    producer = Producer({"bootstrap.servers": address} | QUIET)
    headers = [("h", b"1"), ("h", None), ("ü", b"")]
    producer.produce("every.codec", b"v", b"k", partition=1, timestamp=T0 + 9500, headers=headers)
    assert producer.flush(SECONDS_MAX) == 0


def send(
    address: str, topic: str, records: list[Sent], codec: str = "none", partitions: tuple[int, ...] = (0,)
) -> None:
    """Send all records as one batch to each of the partitions."""
    settings = {"bootstrap.servers": address, "compression.codec": codec, "linger.ms": 100}
    producer = Producer(settings | QUIET)
    for partition in partitions:
        for key, value, timestamp in records:
            producer.produce(topic, value, key, partition=partition, timestamp=timestamp)
    assert producer.flush(SECONDS_MAX) == 0


def one_by_one(address: str, sent: Mapping[str, list[Sent]]) -> None:
    """Send each record in its own batch, with one idempotent producer."""
    settings = {"bootstrap.servers": address, "linger.ms": 0, "batch.num.messages": 1, "enable.idempotence": True}
    producer = Producer(settings | QUIET)
    for topic, records in sent.items():
        for key, value, timestamp in records:
            producer.produce(topic, value, key, partition=0, timestamp=timestamp)
    assert producer.flush(SECONDS_MAX) == 0


def transactional(address: str, transactional_id: str) -> Producer:
    # Longer than any test takes: only a producer with the same id ends the transaction.
    settings = {"bootstrap.servers": address, "transactional.id": transactional_id, "transaction.timeout.ms": 800_000}
    producer = Producer(settings | QUIET)
    producer.init_transactions(SECONDS_MAX)
    return producer


def consumer(address: str, group: str, **settings: str | bool) -> Consumer:
    common: dict[str, str | int | bool] = {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False}
    return Consumer(common | QUIET | settings)


def _send_offset(address: str, producer: Producer, offset: int) -> None:
    member = consumer(address, IN_TRANSACTIONS)
    offsets = [TopicPartition("segments", 0, offset)]
    producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), SECONDS_MAX)
    member.close()


def _commit_offsets(address: str, modern_group: bool) -> None:
    alone = consumer(address, READERS)
    for offset in (3, 7):
        committed = [TopicPartition("segments", 0, offset, "as of"), TopicPartition("every.codec", 1, offset)]
        alone.commit(offsets=committed, asynchronous=False)
    alone.close()
    _read_in_group(address, CLASSIC, {})
    if modern_group:
        _read_in_group(address, MODERN, {"group.protocol": "consumer"})


def _read_in_group(address: str, group: str, settings: dict[str, str]) -> None:
    member = consumer(address, group, **{"auto.offset.reset": "earliest"} | settings)
    member.subscribe(["segments", "stamped"])
    seen = 0
    while seen < 64:
        message = member.poll(SECONDS_MAX)
        assert message is not None and message.error() is None
        seen += 1
    member.commit(asynchronous=False)
    member.close()


# What is there.


def found(address: str, *, modern_group: bool = False) -> Found:
    groups = [READERS, CLASSIC, IN_TRANSACTIONS, *([MODERN] if modern_group else [])]
    # Before all reads, which wait for a leader.
    records = read(address, partitions(), "read_uncommitted")
    committed = read(address, partitions(), "read_committed")
    reader = consumer(address, "nobody")
    starts = {str_of(each): reader.get_watermark_offsets(each, SECONDS_MAX)[0] for each in partitions()}
    reader.close()
    return Found(records, committed, starts, {group: group_offsets(address, group) for group in groups})


def str_of(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def read(address: str, partitions_read: Iterable[TopicPartition], isolation: str) -> dict[str, list[Record]]:
    """Return all records of partitions from their start."""
    settings: dict[str, str | bool] = {"isolation.level": isolation, "fetch.wait.max.ms": "10"}
    reader = consumer(address, "nobody", **settings, **{"enable.partition.eof": True})
    assigned = [TopicPartition(one.topic, one.partition, OFFSET_BEGINNING) for one in partitions_read]
    reader.assign(assigned)
    records: dict[str, list[Record]] = {str_of(one): [] for one in assigned}
    unread = set(records)
    while unread:
        message = reader.poll(SECONDS_MAX)
        assert message is not None, f"{unread} do not end"
        name = f"{message.topic()}-{message.partition()}"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            unread.discard(name)
            continue
        kind, timestamp = message.timestamp()
        headers = tuple((key, value) for key, value in list(message.headers() or ()))
        records[name].append((message.offset(), kind, timestamp, message.key(), message.value(), headers))
    reader.close()
    return records


def group_offsets(address: str, group: str) -> dict[str, tuple[int, str]]:
    # With the other isolation level the consumer would wait for the commit.
    reader = consumer(address, group, **{"isolation.level": "read_uncommitted"})
    committed: list[TopicPartition] = []

    def has_response() -> bool:
        try:
            committed.extend(reader.committed(list(partitions()), SECONDS_MAX))
        except KafkaException as failed:  # The coordinator was just created, or is loading.
            if failed.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                raise
        return bool(committed)

    until(has_response)
    reader.close()
    return {str_of(each): (each.offset, each.metadata or "") for each in committed if each.offset >= 0}


def await_compaction(data: Path, address: str) -> None:
    """Wait until the cleaner has removed records of each compacted topic."""
    compacted = [TopicPartition(name, 0) for name in MOST]

    def is_clean() -> bool:
        read_now = read(address, compacted, "read_uncommitted")
        return all(len(read_now[f"{name}-0"]) < most for name, most in MOST.items())

    nudge(address)
    until(lambda: (data / "cleaner-offset-checkpoint").exists() and is_clean())


# The maximum number of records left in the compacted topics.
MOST = {"compacted": 20, "both": 20, "compacted_transactions": 6}


def nudge(address: str) -> None:
    """Roll the active segments of compacted topics: segment.ms depends on the times of records, including markers."""
    soon = time.time_ns() // 1_000_000 + 5_000
    for topic in MOST:
        send(address, topic, [(b"last", b"last", soon)])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)
