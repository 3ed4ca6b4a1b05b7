"""End transaction markers: Kafka's bytes, and batches that are not markers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import INT32_MAX, ProducerEpoch, ProducerId, TimestampMs
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker, end_marker_batch
from odradek.record.record_batch import Batch, iter_batches

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-4.4.0" / "data" / "control-0"
T = TimestampMs(1_700_000_000_000)


def control(*records: tuple[bytes | None, bytes | None]) -> Batch:
    entries: list[RecordIn] = [(key, value, (), T) for key, value in records]
    return Batch.trusted(memoryview(encode_batch(entries, producer_id=ProducerId(1), is_control=True)))


def test_markers_have_kafkas_bytes() -> None:
    files = sorted(GOLDEN.glob("*.log"))
    markers = [batch for file in files for batch in iter_batches(file.read_bytes()) if batch.is_control]
    assert [end_marker(batch) for batch in markers] == [EndMarker(True, 0), EndMarker(False, 0), EndMarker(True, 0)]
    for theirs in markers:
        marker = end_marker(theirs)
        assert marker is not None
        ours = end_marker_batch(marker, theirs.producer_id, theirs.producer_epoch, theirs.max_timestamp)
        ours.stamp(theirs.base_offset, theirs.leader_epoch)
        assert ours.view == theirs.view


@given(st.booleans(), st.integers(0, INT32_MAX), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_round_trip(commit: bool, coordinator_epoch: int, producer_id: int, epoch: int) -> None:
    marker = EndMarker(commit, coordinator_epoch)
    batch = end_marker_batch(marker, ProducerId(producer_id), ProducerEpoch(epoch), T)
    assert end_marker(batch) == marker
    assert batch.is_intact and batch.is_control and batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.max_timestamp) == (
        producer_id,
        epoch,
        -1,
        T,
    )


@pytest.mark.parametrize(
    "records",
    [
        [(struct.pack(">hh", 0, 2), struct.pack(">hi", 0, 5))],  # A leader's change, of KRaft.
        [(None, struct.pack(">hi", 0, 5))],
        [(struct.pack(">hh", 0, 1), None)],
        [(b"\0\0\0", struct.pack(">hi", 0, 5))],
        [(struct.pack(">hh", 0, 1), b"\0\0")],
    ],
)
def test_other_control_records_are_not_markers(records: list[tuple[bytes | None, bytes | None]]) -> None:
    assert end_marker(control(*records)) is None


def test_control_batch_emptied_by_compaction_is_not_a_marker() -> None:
    raw = control((struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 5))).view[:61]
    struct.pack_into(">i", raw, 57, 0)
    assert end_marker(Batch.trusted(raw)) is None


@given(st.binary(max_size=40))
def test_any_payload_is_decoded_or_is_not_a_marker(payload: bytes) -> None:
    raw = bytearray(control((b"k", b"v")).view[:61]) + payload
    marker = end_marker(Batch.trusted(raw))
    assert marker is None or isinstance(marker, EndMarker)
