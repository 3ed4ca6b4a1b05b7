"""Validation of batches: which need a thread, and that the result depends on bytes and configuration alone."""

from __future__ import annotations

from random import Random

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import UNPACKED_BYTES_MAX
from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.partition import ingress
from odradek.core.partition.partition import Partition
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec, compress
from odradek.record.record_batch import Batch
from odradek.record.records import decode
from support.without_followers import MANAGER

NAME = TopicPartition(TopicName("t"), 0)
T0 = 1_700_000_000_000
NOW = Moment(TimestampMs(T0), 0)
LARGE = Random(1).randbytes(ingress.READ_AT_ONCE_BYTES_MAX)
MIDDLING = LARGE[: ingress.PACKED_ANEW_AT_ONCE_BYTES_MAX]


def configs_of(**changed: str) -> TopicConfigs:
    return BrokerConfigs.parse({}).for_topic({key.replace("_", "."): value for key, value in changed.items()})


def partition_of(configs: TopicConfigs) -> Partition:
    return Partition(NAME, None, PartitionInfo(BrokerId(1), LeaderEpoch(0), (), ()), configs, MANAGER)


def batch(value: bytes = b"v", codec: Codec = Codec.NONE) -> bytes:
    records: list[RecordIn] = [(b"k", value, (), T0)]
    return bytes(encode_batch(records, codec))


@pytest.mark.parametrize(
    ("changed", "raw", "needs"),
    [
        ({}, batch(LARGE, Codec.GZIP), False),
        ({"compression_type": "gzip"}, batch(), False),
        ({"compression_type": "gzip"}, batch(MIDDLING), True),
        ({"compression_type": "gzip"}, batch(codec=Codec.ZSTD), True),
        ({"compression_type": "gzip"}, batch(LARGE, Codec.GZIP), False),
        ({"compression_type": "uncompressed"}, batch(LARGE), False),
        ({"compression_type": "uncompressed"}, batch(codec=Codec.LZ4), True),
        ({"cleanup_policy": "compact"}, batch(MIDDLING), False),
        ({"cleanup_policy": "compact"}, batch(LARGE), True),
        ({"cleanup_policy": "compact"}, batch(codec=Codec.SNAPPY), True),
        ({"cleanup_policy": "compact"}, batch(codec=Codec.GZIP), True),
        ({"cleanup_policy": "compact"}, batch(codec=Codec.LZ4), False),
        ({"cleanup_policy": "compact"}, batch(LARGE, Codec.LZ4), True),
        ({"cleanup_policy": "compact", "compression_type": "gzip"}, batch(codec=Codec.GZIP), True),
        ({"cleanup_policy": "compact", "compression_type": "gzip"}, batch(codec=Codec.ZSTD), True),
        ({"cleanup_policy": "compact", "compression_type": "zstd"}, batch(codec=Codec.ZSTD), False),
        ({"message_timestamp_before_max_ms": "1000"}, batch(codec=Codec.GZIP), True),
        ({"odradek_record_validation": "records"}, batch(codec=Codec.ZSTD), False),
        ({"odradek_record_validation": "records"}, batch(LARGE), True),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else str(value),
)
def test_large_or_recompressed_batch_needs_a_thread(changed: dict[str, str], raw: bytes, needs: bool) -> None:
    configs = configs_of(max_message_bytes="2000000", **changed)
    admitted = ingress.admit(partition_of(configs), bytearray(raw), NOW)
    assert (admitted is None) is needs


@pytest.mark.parametrize("raw", [b"too short", b"", None])
def test_incomplete_batch_is_refused_without_a_thread(raw: bytes | None) -> None:
    with pytest.raises(Refused):
        ingress.admit(partition_of(configs_of(cleanup_policy="compact")), raw, NOW)


def test_validation_keeps_the_records() -> None:
    configs = configs_of(compression_type="lz4", cleanup_policy="compact")
    for codec in Codec:
        raw = batch(LARGE, codec)
        validated = ingress.validate_records(NAME, configs, Batch.checked(bytearray(raw)), NOW)
        assert validated.codec is Codec.LZ4
        assert decode(Batch.verified(validated.view)) == decode(Batch.verified(raw))


@pytest.mark.parametrize("compression", ["uncompressed", "gzip", "lz4"])
def test_decompression_bomb_is_refused_before_recompression(compression: str) -> None:
    configs = configs_of(compression_type=compression)
    payload = compress(Codec.ZSTD, bytes(UNPACKED_BYTES_MAX + 1))
    raw = bytearray(batch(codec=Codec.ZSTD)[:61]) + payload
    with pytest.raises(Refused) as refused:
        ingress.validate_records(NAME, configs, Batch.trusted(raw), NOW)
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_batch_too_large_without_compression_is_refused() -> None:
    configs = configs_of(compression_type="uncompressed")
    raw = batch(bytes(configs.max_message_bytes), Codec.ZSTD)
    with pytest.raises(Refused, match="exceeds the maximum") as refused:
        ingress.validate_records(NAME, configs, Batch.checked(bytearray(raw)), NOW)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


VALIDATED = configs_of(odradek_record_validation="records")


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_small_batch_with_large_content_is_validated_on_a_thread(codec: Codec) -> None:
    raw = bytearray(batch(bytes(ingress.UNPACKED_AT_ONCE_BYTES_MAX), codec))
    assert len(raw) < ingress.PACKED_AT_ONCE_BYTES_MAX
    assert ingress.admit(partition_of(VALIDATED), raw, NOW) is None
    assert ingress.validate_records(NAME, VALIDATED, Batch.checked(raw), NOW).view == raw


@pytest.mark.parametrize("codec", Codec)
def test_wrong_maximum_timestamp_is_corrected(codec: Codec) -> None:
    for wrong in (T0 - 9, T0 + 9, T0 + 10**12):  # The last timestamp is out of bounds, and no record has it.
        raw = with_max_timestamp(batch(codec=codec), max_timestamp=wrong)
        validated = ingress.validate_records(
            NAME, VALIDATED, ingress.checked(partition_of(VALIDATED), bytearray(raw), NOW), NOW
        )
        assert Batch.verified(validated.view).max_timestamp == T0


def test_oversized_record_is_refused_if_compressed() -> None:
    configs = configs_of(odradek_record_validation="records", max_decompressed_message_bytes="100")
    ingress.validate_records(NAME, configs, Batch.checked(bytearray(batch(LARGE))), NOW)
    with pytest.raises(Refused, match="a record decompresses to more than") as refused:
        ingress.validate_records(NAME, configs, Batch.checked(bytearray(batch(b"v" * 200, Codec.ZSTD))), NOW)
    assert refused.value.code == ErrorCode.INVALID_RECORD


def with_max_timestamp(raw: bytes, *, max_timestamp: int) -> bytes:
    one = Batch.checked(bytearray(raw))
    one.stamp_max_timestamp(TimestampMs(max_timestamp))
    return bytes(one.view)
