"""Segments written by Apache Kafka 4.3.0 for its Java client and for librdkafka: one batch for each codec."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.record.arrow import DecodeSelection, decode_batches
from odradek.record.builder import seal_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode

GOLDEN = Path(__file__).parents[2] / "golden" / "record"
SEGMENTS = sorted(GOLDEN.glob("*.log"))
TEXT = "{codec} line {line} of the golden file, long enough to be cut into several blocks by every framing there is"


def value(codec: Codec, line: int) -> bytes:
    return TEXT.format(codec=codec.name.lower(), line=line).encode()


def test_segments_of_both_clients_are_present() -> None:
    assert [path.name for path in SEGMENTS] == ["java_client_4.3.0.log", "librdkafka_2.16.0.log"]


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.stem)
def test_all_records_are_decoded(path: Path) -> None:
    batches = list(iter_batches(path.read_bytes()))
    assert [batch.codec for batch in batches] == list(Codec)
    assert sum(batch.size for batch in batches) == path.stat().st_size
    offset = 0
    for batch in batches:
        records = decode(Batch.verified(batch.view))
        assert [record.key for record in records] == [b"key%d" % i for i in range(batch.records_count)]
        assert [record.value for record in records] == [value(batch.codec, i) for i in range(batch.records_count)]
        assert [record.offset for record in records] == list(range(offset, offset + batch.records_count))
        offset = batch.next_offset


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.stem)
def test_arrow_rows_match_the_records(path: Path) -> None:
    batches = list(iter_batches(path.read_bytes()))
    rows = [
        row for table in decode_batches(batches, "t", 0, DecodeSelection(headers=True)) for row in table.to_pylist()
    ]
    records = [record for batch in batches for record in decode(batch)]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(r.offset, r.key, r.value) for r in records]
    assert [[(h["key"], h["value"]) for h in row["headers"] or ()] for row in rows] == [
        list(r.headers) for r in records
    ]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [r.timestamp for r in records]


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.stem)
def test_sealing_a_batch_again_reproduces_its_bytes(path: Path) -> None:
    """Only without a codec: compressed bytes depend on the library."""
    batch = next(iter_batches(path.read_bytes()))
    again = seal_batch(
        bytearray(batch.view),
        count=batch.records_count,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        attributes=batch.attributes,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    assert again == batch.view
