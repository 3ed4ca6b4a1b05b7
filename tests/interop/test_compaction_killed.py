"""A compacting broker killed repeatedly: no acknowledged value is lost, and no older one comes back."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Not in its stubs.

from support.serving import Serving

SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "0",
    "replica.high.watermark.checkpoint.interval.ms": "300",
}
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "40000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}
KEYS = 50
SECONDS_MAX = 60


class Table:
    """Keys with rising numbers, and tombstones, with the acknowledged and the sent values of each."""

    def __init__(self, address: str, seed: int) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.sent: dict[bytes, dict[int, bytes | None]] = {}
        self._random = Random(seed)
        self._numbers = dict[bytes, int]()
        self._over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "batch.size": 10_000,  # A batch fits into a segment.
            }
        )
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Table:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(SECONDS_MAX) == 0

    def _write(self) -> None:
        while not self._over.is_set():
            key = b"key-%d" % self._random.randrange(KEYS)
            number = self._numbers[key] = self._numbers.get(key, 0) + 1
            value = None if self._random.random() < 0.1 else b"%d " % number + bytes(self._random.randrange(400))
            self.sent.setdefault(key, {})[number] = value

            def on_delivery(error: KafkaError | None, _: object, key: bytes = key, number: int = number) -> None:
                assert error is None, error
                self.acknowledged[key] = max(self.acknowledged.get(key, 0), number)

            while not self._over.is_set():
                with suppress(BufferError):  # Its queue is full while the broker is down.
                    self._producer.produce(
                        "table", value, key, on_delivery=on_delivery, headers=[("n", b"%d" % number)]
                    )
                    break
                self._producer.poll(0.1)
            self._producer.poll(0)
            if self._random.random() < 0.02:
                time.sleep(0.01)


def read(address: str) -> list[tuple[bytes, int, bytes | None]]:
    """Return key, number and value of every record up to the current end."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("table", 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition("table", 0), SECONDS_MAX)
    found = []
    while consumer.position([TopicPartition("table", 0)])[0].offset < end:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, "the end is told"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            break
        found.append((message.key(), int(message.headers()[0][1]), message.value()))
    consumer.close()
    return found


def check(table: Table, found: list[tuple[bytes, int, bytes | None]], acknowledged: dict[bytes, int]) -> None:
    last: dict[bytes, int] = {}
    for key, number, value in found:
        assert number > last.get(key, 0), "an older record comes after a newer one"
        assert table.sent[key][number] == value, "a record is what was sent"
        last[key] = number
    for key, number in acknowledged.items():
        newest = last.get(key)
        if newest is None:
            # The key is missing: only a tombstone, since removed, explains that.
            assert any(table.sent[key][later] is None for later in table.sent[key] if later >= number), key
        else:
            assert newest >= number or table.sent[key][number] is None, key


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))])
def test_kills_during_compaction_lose_no_value(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    broker = Serving(tmp_path, **SETTINGS)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.address})
        for made in admin.create_topics([NewTopic("table", 1, 1, config=CONFIGS)]).values():
            made.result(SECONDS_MAX)
        with Table(broker.address, seed) as table:
            for _ in range(8):
                time.sleep(random.uniform(0.3, 2.5))
                acknowledged = dict(table.acknowledged)
                if random.random() < 0.5:
                    check(table, read(broker.address), acknowledged)
                    acknowledged = dict(table.acknowledged)
                broker.kill()
                broker.start()
                check(table, read(broker.address), acknowledged)
        acknowledged = dict(table.acknowledged)
        found = read(broker.address)
        check(table, found, acknowledged)
        total = sum(len(numbers) for numbers in table.sent.values())
        assert len(found) < total / 2, "it was compacted meanwhile"
        log = (tmp_path / "stderr.txt").read_text()
        assert "ERROR" not in log and "Traceback" not in log
    finally:
        broker.stop()
