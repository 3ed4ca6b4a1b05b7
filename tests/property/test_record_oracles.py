"""The same records with other encoders and decoders: kafka-python and aiokafka."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch
from odradek.record.records import decode
from support.record_kernels import records

kafka_python = pytest.importorskip("kafka.record.default_records")

# kafka-python's timestamps are milliseconds of our time; both write varints of at most 32 bits where the format allows.
TIMES = st.integers(0, 2**45)
PRODUCER = {"producer_id": ProducerId(2**40), "producer_epoch": ProducerEpoch(7), "base_sequence": 11}


def ours(data: bytes) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in decode(Batch.verified(data))]


def theirs(batch: Any) -> list[tuple[Any, ...]]:
    assert batch.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, [tuple(header) for header in r.headers]) for r in batch]


def built(builder: Any, rows: list[RecordIn]) -> bytes:
    for offset, (key, value, headers, timestamp) in enumerate(rows):
        builder.append(offset, timestamp=timestamp, key=key, value=value, headers=headers)
    return bytes(builder.build())


@settings(max_examples=60)
@given(records(TIMES), st.sampled_from([Codec.NONE, Codec.GZIP]), st.integers(0, 2**40), st.booleans())
def test_kafka_python_reads_and_writes_the_same_records(
    rows: list[RecordIn], codec: Codec, base_offset: int, transactional: bool
) -> None:
    """Its other codecs require additional packages."""
    data = bytes(encode_batch(rows, codec, base_offset=Offset(base_offset), is_transactional=transactional, **PRODUCER))
    batch = kafka_python.DefaultRecordBatch(data)
    assert theirs(batch) == ours(data)
    assert (batch.base_offset, batch.is_transactional, batch.producer_id) == (base_offset, transactional, 2**40)
    assert (batch.producer_epoch, batch.base_sequence, batch.last_offset_delta) == (7, 11, len(rows) - 1)
    made = built(kafka_python.DefaultRecordBatchBuilder(2, codec, transactional, 2**40, 7, 11, 2**30), rows)
    assert ours(made) == [(i, row[3], row[0], row[1], list(row[2])) for i, row in enumerate(rows)]
    if codec is Codec.NONE:
        same = encode_batch(rows, is_transactional=transactional, leader_epoch=LeaderEpoch(0), **PRODUCER)
        assert made == bytes(same), "it writes epoch 0 for none"


@settings(max_examples=60)
@given(records(TIMES), st.sampled_from(Codec))
def test_aiokafka_reads_and_writes_the_same_records(rows: list[RecordIn], codec: Codec) -> None:
    """Its reader of snappy, lz4 and zstd is not ours, though the library under it is the same."""
    aiokafka = pytest.importorskip("aiokafka.record.default_records")
    data = bytes(encode_batch(rows, codec))
    assert theirs(aiokafka.DefaultRecordBatch(data)) == ours(data)
    made = built(aiokafka.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**30), rows)
    assert ours(made) == ours(data)
