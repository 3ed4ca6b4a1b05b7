"""Which batches may take long to be looked into, and that a look is a function of bytes and configuration."""

from __future__ import annotations

from random import Random

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import UNPACKED_BYTES_MAX
from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.core import ingress
from odradek.core.cluster import PartitionInfo
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.configs.topic import TopicConfigs
from odradek.core.moment import Moment
from odradek.core.partition import Partition
from odradek.record.batch import Batch
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec, compress
from odradek.record.records import decode

NAME = TopicPartition(TopicName("t"), 0)
T0 = 1_700_000_000_000
NOW = Moment(TimestampMs(T0), 0)
LARGE = Random(1).randbytes(ingress.LOOKED_INTO_AT_ONCE_BYTES_MAX)


def configs_of(**changed: str) -> TopicConfigs:
    return BrokerConfigs.parse({}).for_topic({key.replace("_", "."): value for key, value in changed.items()})


def partition_of(configs: TopicConfigs) -> Partition:
    return Partition(NAME, None, PartitionInfo(BrokerId(1), LeaderEpoch(0), (), ()), configs)


def batch(value: bytes = b"v", codec: Codec = Codec.NONE) -> bytes:
    records: list[RecordIn] = [(b"k", value, (), T0)]
    return bytes(encode_batch(records, codec))


@pytest.mark.parametrize(
    ("changed", "raw", "needs"),
    [
        ({}, batch(LARGE, Codec.GZIP), False),
        ({"compression_type": "gzip"}, batch(), False),
        ({"compression_type": "gzip"}, batch(LARGE), True),
        ({"compression_type": "gzip"}, batch(codec=Codec.ZSTD), True),
        ({"compression_type": "gzip"}, batch(LARGE, Codec.GZIP), False),
        ({"compression_type": "uncompressed"}, batch(LARGE), False),
        ({"compression_type": "uncompressed"}, batch(codec=Codec.LZ4), True),
        ({"cleanup_policy": "compact"}, batch(), False),
        ({"cleanup_policy": "compact"}, batch(LARGE), True),
        ({"cleanup_policy": "compact"}, batch(codec=Codec.SNAPPY), True),
        ({"cleanup_policy": "compact", "compression_type": "gzip"}, batch(codec=Codec.GZIP), True),
        ({"message_timestamp_before_max_ms": "1000"}, batch(codec=Codec.GZIP), True),
        ({"cleanup_policy": "compact"}, b"too short", False),
        ({"cleanup_policy": "compact"}, b"", False),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else str(value),
)
def test_what_needs_a_thread(changed: dict[str, str], raw: bytes, needs: bool) -> None:
    assert ingress.needs_thread(partition_of(configs_of(**changed)), raw) is needs


def test_a_look_keeps_the_records() -> None:
    configs = configs_of(compression_type="lz4", cleanup_policy="compact")
    for codec in Codec:
        raw = batch(LARGE, codec)
        looked = ingress.look(NAME, configs, Batch.checked(bytearray(raw)), NOW)
        assert looked.codec is Codec.LZ4
        assert decode(Batch.verified(looked.view)) == decode(Batch.verified(raw))


@pytest.mark.parametrize("compression", ["uncompressed", "gzip", "lz4"])
def test_a_bomb_is_refused_before_it_is_packed_again(compression: str) -> None:
    configs = configs_of(compression_type=compression)
    payload = compress(Codec.ZSTD, bytes(UNPACKED_BYTES_MAX + 1))
    raw = bytearray(batch(codec=Codec.ZSTD)[:61]) + payload
    with pytest.raises(Refused) as refused:
        ingress.look(NAME, configs, Batch.trusted(raw), NOW)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


def test_what_is_too_large_without_a_codec_is_told_so() -> None:
    configs = configs_of(compression_type="uncompressed")
    raw = batch(bytes(configs.max_message_bytes), Codec.ZSTD)
    with pytest.raises(Refused, match="exceeds the maximum") as refused:
        ingress.look(NAME, configs, Batch.checked(bytearray(raw)), NOW)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
