"""Generator of tests/golden/kafka-4.4.0: a data directory of a real Apache Kafka, and the records written to it.

    python tests/interop/capture_golden_logs.py

Run once; the result is kept in the repository, so that tests need no java. Topics: `codecs` (every codec, keys and
values of every shape), `rolled` (several segments with index entries), `stamped` (LogAppendTime), `control`
(committed and aborted transactions), `cut` (DeleteRecords).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from base64 import b64encode
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka_peer import VERSION, KafkaBroker

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / f"kafka-{VERSION}"
T0 = 1_700_000_000_000
TOPICS: dict[str, dict[str, str]] = {
    "codecs": {},
    "rolled": {"segment.ms": "5000", "index.interval.bytes": "100", "segment.index.bytes": "1024"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "control": {},
    "cut": {"segment.ms": "5000"},
}


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    with KafkaBroker(folder) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
        for future in admin.create_topics(topics).values():
            future.result(30)
        produce(broker.address)
        for deleted in admin.delete_records([TopicPartition("cut", 0, 4)]).values():
            deleted.result(30)
        records = {name: consume(broker.address, name) for name in TOPICS}
    keep(folder / "data", records)
    shutil.rmtree(folder)


def produce(address: str) -> None:
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        send(address, "codecs", [(b"k%d" % i, b"value " * 20, T0 + number * 1000 + i) for i in range(5)], codec)
    send(address, "codecs", [(None, b"", T0 + 9000), (b"", None, T0 + 9001), ("ключ".encode(), b"\0\xff", T0 + 9002)])
    producer = Producer({"bootstrap.servers": address})
    producer.produce("codecs", b"v", b"k", timestamp=T0 + 9500, headers=[("h", b"1"), ("h", None), ("ü", b"")])
    producer.flush()
    for number in range(12):
        send(address, "rolled", [(None, b"r" * 60, T0 + number * 1500 + i) for i in range(2)])
    send(address, "stamped", [(None, b"s%d" % i, T0) for i in range(3)])
    for number in range(6):
        send(address, "cut", [(None, b"c%d" % number, T0 + number * 3000)])
    transact(address)


def send(address: str, topic: str, records: list[tuple[bytes | None, bytes | None, int]], codec: str = "none") -> None:
    producer = Producer({"bootstrap.servers": address, "compression.codec": codec, "linger.ms": 200})
    for key, value, timestamp in records:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp)
    producer.flush()


def transact(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "golden"})
    producer.init_transactions()
    for number, commits in enumerate([True, False, True]):
        producer.begin_transaction()
        producer.produce("control", b"t%d" % number, timestamp=T0 + number)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()


def consume(address: str, topic: str) -> list[dict[str, object]]:
    settings = {"bootstrap.servers": address, "group.id": "none", "isolation.level": "read_uncommitted"}
    consumer = Consumer(settings | {"enable.auto.commit": False, "enable.partition.eof": True})
    start, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[dict[str, object]] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        found.append(
            {
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
                "key": text(message.key()),
                "value": text(message.value()),
                "headers": [[name, text(value)] for name, value in list(message.headers() or ())],
            }
        )
    consumer.close()
    return found


def text(raw: object) -> str | None:
    return b64encode(raw).decode() if isinstance(raw, bytes) else None


def keep(data: Path, records: dict[str, list[dict[str, object]]]) -> None:
    shutil.rmtree(GOLDEN / "data", ignore_errors=True)  # Other recordings are next to it.
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for path in data.iterdir():
        if path.name.rpartition("-")[0] in TOPICS:
            shutil.copytree(path, GOLDEN / "data" / path.name)
        elif path.is_file() and path.name not in (".lock", "bootstrap.checkpoint"):
            (GOLDEN / "data").mkdir(exist_ok=True)
            shutil.copy(path, GOLDEN / "data" / path.name)
    (GOLDEN / "records.json").write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
