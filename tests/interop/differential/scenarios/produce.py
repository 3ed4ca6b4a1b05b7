"""Produce: valid, odd and invalid records, acks, topics and partitions, and the stored records."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import fetch, fetch_part, produce, topic
from differential.batches import CODECS, FIELDS, PACKED, RECORDS, THEN_MS, batch, compressed, headed, of_payload, one
from differential.steps import BORDERLINE, NO_SUCH_ID, VALID, WRONG, Scenario, Step, id_of, request_step
from odradek.base.uuids import ZERO_UUID
from odradek.record.builder import encode_batch
from odradek.record.record_batch import CONTROL, DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME, TRANSACTIONAL
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

VERSIONS = range(3, 14)
FUTURE_MS = 9_999_999_999_999
PLAIN = bytes(encode_batch(RECORDS))[HEADER_BYTES:]
EDGES = {"base_offset": 5, "leader_epoch": 99, "producer_epoch": 7}

# If only one side inspects the records, later steps must not depend on them.
APART: dict[str, bytes] = {
    "rubbish for records": of_payload(b"no record at all"),
    "no records, counted two": of_payload(b""),
    "one record too few": of_payload(PLAIN, count=3),
    "one record too many": of_payload(PLAIN, count=1),
    "bytes after the records": of_payload(PLAIN + b"\0\0"),
    "compressed rubbish": of_payload(b"no gzip at all", codec=1),
    "snappy rubbish": of_payload(b"no snappy at all", codec=2),
    "lz4 rubbish": of_payload(b"no lz4 at all", codec=3),
    "zstd rubbish": of_payload(b"no zstd at all", codec=4),
    "gzip cut short": of_payload(bytes.fromhex(PACKED[1])[:-9], codec=1),
    "gzip with fewer records than counted": of_payload(bytes.fromhex(PACKED[1]), codec=1, count=3),
    "gzip with more records than counted": of_payload(bytes.fromhex(PACKED[1]), codec=1, count=1),
    "inner offsets wrong": of_payload(PLAIN.replace(b"\x1a\0\x0a\2", b"\x1a\0\x0a\6")),
    "record length too long": of_payload(b"\x7e" + PLAIN[1:]),
    "max timestamp too high": batch(max_timestamp=THEN_MS + 999),
    "max timestamp too low": batch(max_timestamp=THEN_MS),
    "base timestamp set": batch(base_timestamp=-1),
    "record attributes set": of_payload(PLAIN[:1] + b"\1" + PLAIN[2:]),
}
TOGETHER: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"\0",
    "rubbish": b"rubbish",
    "zeros": bytes(200),
    "cut in the header": batch()[:40],
    "cut": batch()[:-1],
    "one byte too many": batch() + b"\0",
    "half a batch more": batch() + batch()[:30],
    "two batches": batch() * 2,
    "crc wrong": batch(crc=1),
    "a byte flipped": batch()[:-1] + b"\1",
    "format 0": headed(batch(), magic=0),
    "format 1": headed(batch(), magic=1),
    "format 3": headed(batch(), magic=3),
    "format -1": headed(batch(), magic=-1),
    "length too small": headed(batch(), batch_length=20),
    "length negative": headed(batch(), batch_length=-1),
    "length too large": headed(batch(), batch_length=1000),
    "count 0": batch(records_count=0),
    "count -1": batch(records_count=-1),
    "count 0, delta -1": batch(records_count=0, last_offset_delta=-1),
    "count too large": batch(records_count=2**31 - 1, last_offset_delta=2**31 - 2),
    "last offset delta 0": batch(last_offset_delta=0),
    "codec 5": batch(attributes=5),
    "codec 7": batch(attributes=7),
    "control": bytes(encode_batch([(b"\0\0\0\0", b"", (), THEN_MS)], is_control=True)),
    "control bit": batch(attributes=CONTROL),
    "transactional bit": batch(attributes=TRANSACTIONAL),
    "transactional bit and producer": batch(attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0),
    "log append time bit": batch(attributes=LOG_APPEND_TIME),
    "delete horizon bit": batch(attributes=DELETE_HORIZON),
    "unknown attribute": batch(attributes=1 << 10),
    "without sequence": batch(producer_id=5, producer_epoch=0, base_sequence=-1),
    "sequence without producer": batch(base_sequence=4),
    "producer without epoch": batch(producer_id=5, producer_epoch=-1, base_sequence=0),
    "negative sequence": batch(producer_id=5, producer_epoch=0, base_sequence=-2),
    "of the future": batch(FUTURE_MS),
    "of long ago": batch(1),
    "without time": batch(-1),
    "too large": one(None, b"x" * 1_100_000),
    "just small enough": one(None, b"x" * 1_048_508),
    "just too large": one(None, b"x" * 1_048_509),
    "null record": one(None, None),
    "empty record": one(b"", b""),
    **{f"{name} set": batch(**{name: value}) for name, value in EDGES.items()},
}
assert set(EDGES) <= set(FIELDS)
LARGE = {"too large", "just small enough", "just too large"}


def scenarios() -> list[Scenario]:
    return [
        *(_records(version) for version in VERSIONS),
        *(_targets(version) for version in VERSIONS),
        _topics(),
        _sequences(),
    ]


def _records(version: int) -> Scenario:
    """Send each kind of records, and read the log back to compare the stored records, too."""
    name = f"produce-{version}"
    steps = [request_step("good", VALID, produce(version, [(0, batch())], name), version)]
    steps += [
        request_step(codec, VALID, produce(version, [(0, compressed(number))], name), version)
        for codec, number in CODECS.items()
    ]
    for text, records in TOGETHER.items():
        if text not in LARGE or version in (3, 9):
            steps.append(request_step(text, WRONG, produce(version, [(0, records)], name), version))
    for place, (text, records) in enumerate(APART.items(), 1):
        steps.append(request_step(text, WRONG, produce(version, [(place, records)], name), version))
    if version == 9:
        null = request_step("null", WRONG, produce(version, [(0, None)], name), version)
        steps.append(null._replace(seconds_max=3))
    parts = [fetch_part(place, 0, 10_000) for place in range(1 + len(APART))]
    steps.append(request_step("what is stored", VALID, fetch(12, parts, name), 12))
    return Scenario(f"Produce v{version} records", steps, [topic(name, 1 + len(APART))])


def _targets(version: int) -> Scenario:
    name = f"targets-{version}"
    good = batch()

    def step(text: str, form: str, parts: list[tuple[int, bytes | None]], acks: int = 1, at: str = name) -> Step:
        return request_step(text, form, produce(version, parts, at, acks), version)

    steps = [
        step("acks all", VALID, [(0, good)], -1),
        step("acks 0", VALID, [(0, good)], 0),
        step("acks 2", WRONG, [(0, good)], 2),
        step("acks -2", WRONG, [(0, good)], -2),
        step("two partitions", VALID, [(0, good), (1, good)]),
        step("one of two wrong", WRONG, [(0, good), (1, b"rubbish")]),
        step("one of two not there", WRONG, [(0, good), (5, good)]),
        step("partition twice", BORDERLINE, [(2, good), (2, good)]),
        step("partition -1", WRONG, [(-1, good)]),
        step("partition 99", WRONG, [(99, good)]),
        step("no partitions", BORDERLINE, []),
        step("acks 0 to nowhere", WRONG, [(99, good)], 0),
        step("acks 0 with rubbish", WRONG, [(0, b"rubbish")], 0),
        step("acks all with rubbish", WRONG, [(0, b"rubbish")], -1),
        request_step("no topics", BORDERLINE, ProduceRequest(acks=1, timeout_ms=9, topic_data=[]), version),
        request_step("no topics, acks 0", BORDERLINE, ProduceRequest(acks=0, timeout_ms=9, topic_data=[]), version),
        *_timeouts(version, name),
        *_named(version, name),
        request_step(
            "what is stored",
            VALID,
            fetch(12, [fetch_part(0, 0, 10_000), fetch_part(1, 0, 10_000)], name),
            12,
        ),
    ]
    return Scenario(f"Produce v{version} targets", steps, [topic(name, 3)])


def _timeouts(version: int, name: str) -> Iterator[Step]:
    for timeout_ms in (0, -1):
        request = produce(version, [(0, batch())], name)
        request.timeout_ms = timeout_ms
        yield request_step(f"timeout {timeout_ms}", BORDERLINE, request, version)


def _named(version: int, name: str) -> Iterator[Step]:
    data = [PartitionProduceData(index=0, records=batch())]
    if version >= 13:
        for text, topic_id in (("unknown id", NO_SUCH_ID), ("zero id", ZERO_UUID)):
            topics = [TopicProduceData(topic_id=topic_id, partition_data=data)]
            yield request_step(text, WRONG, ProduceRequest(acks=1, timeout_ms=9, topic_data=topics), version)
    else:
        for wrong in ("", "nowhere", "a/b", "..", "x" * 250, "__consumer_offsets"):
            yield request_step(f"topic {wrong[:20]!r}", WRONG, produce(version, [(0, batch())], wrong), version)
    part = TopicProduceData(name=name, topic_id=id_of(name) if version >= 13 else ZERO_UUID, partition_data=data)
    other = TopicProduceData(
        name=name, topic_id=part.topic_id, partition_data=[PartitionProduceData(index=1, records=batch())]
    )
    twice = ProduceRequest(acks=1, timeout_ms=9, topic_data=[part, other])
    yield request_step("topic twice", BORDERLINE, twice, version)
    request = produce(version, [(0, batch())], name)
    request.transactional_id = "tx"
    yield request_step("a transactional id", BORDERLINE, request, version)


# The topics whose configs matter, and the records sent to them.
def _topics() -> Scenario:
    steps = []
    for name in ("p-time", "p-compact", "p-gzip", "p-plain", "p-small", "p-old"):
        for text, records in (
            ("plain", batch()),
            ("with keys", one(b"k", b"v")),
            ("gzip", compressed(1)),
            ("tombstone", one(b"k", None)),
            ("large", one(b"k", b"x" * 300)),
        ):
            steps.append(request_step(f"{name} {text}", VALID, produce(9, [(0, records)], name), 9))
        if name != "p-gzip":
            steps.append(request_step(f"{name} stored", VALID, fetch(12, [fetch_part(0, 0, 10_000)], name), 12))
    return Scenario(
        "Produce by configuration",
        steps,
        [
            topic("p-time", message_timestamp_type="LogAppendTime"),
            topic("p-compact", cleanup_policy="compact"),
            topic("p-gzip", compression_type="gzip"),
            topic("p-plain", compression_type="uncompressed"),
            topic("p-small", max_message_bytes="200"),
            topic("p-old", message_timestamp_before_max_ms="3600000"),
        ],
    )


def _sequences() -> Scenario:
    """Send batches of an idempotent producer: repeated, with a gap, and with an older epoch."""
    steps = [
        request_step(
            text, form, produce(9, [(0, batch(producer_id=900, producer_epoch=epoch, base_sequence=first))], "seq"), 9
        )
        for text, form, epoch, first in (
            ("first", VALID, 1, 0),
            ("next", VALID, 1, 2),
            ("the same again", BORDERLINE, 1, 2),
            ("the first again", BORDERLINE, 1, 0),
            ("a gap", WRONG, 1, 9),
            ("an older epoch", WRONG, 0, 4),
            ("a newer epoch", VALID, 2, 0),
            ("a newer epoch, not from 0", WRONG, 3, 5),
        )
    ]
    steps.append(request_step("what is stored", VALID, fetch(12, [fetch_part(0, 0, 10_000)], "seq"), 12))
    return Scenario("Produce with sequences", steps, [topic("seq")])
