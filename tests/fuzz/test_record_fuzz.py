"""Random bytes as records: decoded or Refused, within limits, and alike by all decoders."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import Refused
from odradek.base.units import TimestampMs
from odradek.record import arrow
from odradek.record.arrow import DecodeSelection, decode_batches
from odradek.record.builder import RecordIn, encode_batch, seal_batch
from odradek.record.compression import Codec, compress, decompress
from odradek.record.record_batch import HEADER_BYTES, Batch, iter_batches
from odradek.record.records import decode
from support.record_kernels import BUILDS, kernel, records

CODECS = st.sampled_from(Codec)


def around(payload: bytes, count: int) -> Batch:
    """Return a batch with a valid header and checksum around any records."""
    data = bytearray(HEADER_BYTES) + payload
    times = {"base_timestamp": TimestampMs(1000), "max_timestamp": TimestampMs(2000)}
    return Batch.verified(seal_batch(data, count=count, **times))


def outcome(batch: Batch) -> list[tuple[Any, ...]] | None:
    try:
        return [(r.offset, r.key, r.value, [key for key, _ in r.headers]) for r in decode(batch)]
    except Refused:
        return None


def arrow_outcome(batch: Batch, decoder: object) -> list[tuple[Any, ...]] | None:
    got = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "Decoder", decoder)
        try:
            for table in decode_batches([batch], "t", 0, DecodeSelection(headers=True, start=-(2**63))):
                table.validate(full=True)
                got += [
                    (row["offset"], row["key"], row["value"], [header["key"] for header in row["headers"] or ()])
                    for row in table.to_pylist()
                ]
        except Refused:
            return None
    return got


def mangled(random: Random, payload: bytes) -> bytes:
    """Return the payload with a few bytes changed, or a piece removed or doubled."""
    data = bytearray(payload)
    for _ in range(random.randint(1, 3)):
        start = random.randrange(len(data) + 1)
        stop = min(len(data), start + random.randint(0, 8))
        data[start:stop] = random.choice(
            [b"", random.randbytes(stop - start), bytes(data[start:stop]) * 2, b"\xff" * random.randint(0, 11), b"\x01"]
        )
    return bytes(data)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_batch(data: bytes) -> None:
    for gate in (Batch.checked, Batch.verified, lambda some: [decode(batch) for batch in iter_batches(some)]):
        with suppress(Refused):
            assert gate(data) == []  # A run without a whole batch is fine.


@given(st.binary(max_size=300), CODECS)
def test_random_bytes_are_decompressed_or_refused(data: bytes, codec: Codec) -> None:
    with suppress(Refused):
        assert len(decompress(codec, data, 1 << 20)) <= 1 << 20


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_mangled_compression_is_decoded_or_refused(codec: Codec) -> None:
    random = Random(codec)
    packed = compress(codec, b"".join(b'{"k": %d, "v": "some text"}' % i for i in range(300)))
    for _ in range(1500):
        with suppress(Refused):
            assert len(decompress(codec, mangled(random, packed), 1 << 20)) <= 1 << 20


@pytest.mark.parametrize("build", BUILDS)
def test_all_decoders_agree_on_mangled_records(build: str) -> None:
    decoder = kernel("decode", build).Decoder

    @settings(max_examples=100)
    @given(records(st.integers(0, 2**40)), st.randoms(use_true_random=False), st.integers(-1, 1))
    def check(rows: list[RecordIn], random: Random, more: int) -> None:
        payload = bytes(Batch.checked(encode_batch(rows)).payload)
        batch = around(mangled(random, payload), max(len(rows) + more, 1))
        expected = outcome(batch)
        assert arrow_outcome(batch, decoder) == expected

    check()


def test_many_mangled_records_never_crash_the_compiled_kernels() -> None:
    compiled, check = kernel("decode", "compiled").Decoder, kernel("decode", "compiled").Check(True, 0, 2000)
    random = Random(7)
    rows = [(b"key", b"v" * 70, [("name", b"x"), ("n", None)], 1000 + i) for i in range(8)]
    payload = bytes(Batch.checked(encode_batch(rows)).payload)
    decoder = compiled(True, True, True, bytearray)
    for _ in range(20_000):
        data = mangled(random, payload)
        count = random.randint(0, 12)
        sound = check.run(data, count, 0) < 0
        decoded = decoder.decode(data, count, 0, 0, None) < 0
        assert decoded or not sound, "what a broker takes can be read"
        if random.random() < 0.01:
            decoder.clear()
