"""Edge cases of the kernels, compiled and interpreted. A property test compares their results with records.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from support.record_kernels import BUILDS, kernel

KNOWN_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"": 275646681,
}


@pytest.fixture(params=BUILDS)
def decode(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    yield kernel("decode", request.param)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("key", KNOWN_HASHES)
def test_murmur2_matches_kafkas_hashes(build: str, key: bytes) -> None:
    assert kernel("murmur", build).murmur2(memoryview(key)) == KNOWN_HASHES[key] % (1 << 32)


def batch_of(count: int, value: bytes = b"value") -> Batch:
    return Batch.checked(encode_batch([(b"k", value, (), 1000 + i) for i in range(count)]))


def values(decoder: object, rows: int) -> list[bytes]:
    _, offsets, data = decoder.values.buffers()  # type: ignore[attr-defined]  # A compiled class has no stub.
    borders = memoryview(offsets).cast("B").cast("i")
    return [bytes(memoryview(data)[borders[row] : borders[row + 1]]) for row in range(rows)]


def test_rows_of_several_batches_accumulate(decode: ModuleType) -> None:
    decoder = decode.Decoder(True, True, False, bytearray)
    for base in range(0, 5000, 500):
        batch = batch_of(500)
        assert decoder.decode(batch.payload, 500, base, batch.base_timestamp, None) == -1
    assert decoder.rows == 5000
    assert list(memoryview(decoder.offsets_owner).cast("q")[:5000]) == list(range(5000))
    assert values(decoder, 5000) == [b"value"] * 5000


def test_malformed_batch_adds_no_rows(decode: ModuleType) -> None:
    decoder = decode.Decoder(True, True, True, bytearray)
    good = batch_of(10)
    assert decoder.decode(good.payload, 10, 0, 0, None) == -1
    broken = bytearray(batch_of(10, b"other").payload)
    broken[-1] = 0x55
    assert decoder.decode(broken, 10, 10, 0, None) == 9
    assert decoder.rows == 10
    assert decoder.decode(good.payload, 10, 10, 0, None) == -1
    assert values(decoder, 20) == [b"value"] * 20
    assert decoder.values.nulls == decoder.keys.nulls == 0


def test_only_rows_in_the_offset_window_are_decoded(decode: ModuleType) -> None:
    decoder = decode.Decoder(False, True, False, bytearray)
    decoder.window(105, 108)
    assert decoder.decode(batch_of(10).payload, 10, 100, 0, None) == -1
    assert list(memoryview(decoder.offsets_owner).cast("q")[:3]) == [105, 106, 107]
    assert decoder.rows == 3


def test_timestamps_are_clamped_to_the_range_of_microseconds(decode: ModuleType) -> None:
    decoder = decode.Decoder(False, False, False, bytearray)
    for timestamp in (2**63 - 1, -(2**63), 9_223_372_036_854_775, 5):
        assert decoder.decode(batch_of(1).payload, 1, 0, timestamp, None) == -1
    assert decoder.decode(batch_of(1).payload, 1, 0, 0, 7) == -1
    assert list(memoryview(decoder.timestamps_owner).cast("q")[:5]) == [
        2**63 - 1,
        -(2**63) + 1,
        9_223_372_036_854_775_000,
        5000,
        7000,
    ]


def test_impossible_record_count_allocates_no_memory(decode: ModuleType) -> None:
    decoder = decode.Decoder(True, True, True, bytearray)
    assert decoder.decode(batch_of(3).payload, 2**31 - 1, 0, 0, None) == 0
    assert decoder.rows == 0


@pytest.mark.parametrize(
    ("count", "bad"), [(3, -1), (4, 3), (2, 2), (0, 0)], ids=["right", "one too many", "bytes are left", "none"]
)
def test_check_refuses_a_wrong_record_count(decode: ModuleType, count: int, bad: int) -> None:
    assert check(decode).run(batch_of(3).payload, count, 0) == bad


def test_check_requires_increasing_offsets(decode: ModuleType) -> None:
    record = bytes(batch_of(1).payload)
    assert check(decode).run(record, 1, 0) == -1
    assert check(decode).run(record + record, 2, 0) == 1


def check(decode: ModuleType) -> Any:
    return decode.Check(False, -(2**63), 2**63 - 1)


@pytest.mark.waits
def test_kernels_run_without_cython() -> None:
    """The same kernels run on a machine without Cython and a compiler."""
    program = (
        "import sys; sys.modules['cython'] = None\n"
        "sys.path[:0] = ['tests']\n"
        "from support.record_kernels import kernel\n"
        "assert kernel('decode', 'interpreted').Check(False, 0, 0).run(b'', 0, 0) == -1\n"
        "assert kernel('runs', 'interpreted').Runs(0, 0, -1, 0).run(b'', 0) == 0\n"
        "assert kernel('murmur', 'interpreted').murmur2(b'21') == 3321034988\n"
        "assert kernel('compact', 'interpreted').OffsetMap(24).put_records(b'', 0, 0, 0, 1) == -1\n"
        "runs = kernel('compact_runs', 'interpreted')\n"
        "assert runs.KeyRuns(kernel('compact', 'interpreted').OffsetMap(24), 0, 1).run(0, 0, 1) == 0"
    )
    done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=False)
    assert done.returncode == 0
