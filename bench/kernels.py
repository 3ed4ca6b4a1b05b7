"""Records per second between batches as they lie in the log and Arrow RecordBatches, on one core.

    python bench/kernels.py [SECONDS]      for each line; 0.3 by default

Log bytes → Arrow is with checksum and decompression; Arrow → batches with compression and checksum.  Values are random
but for half of their bytes, so that codecs have something to do; there are no keys.  Each case has 16 batches of 1 MB.
The survey is what a lookup by time and a topic that wants keys ask of a batch: decompression, and every record read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import process_time
from types import ModuleType

import pyarrow as pa

from odradek.base.units import INT32_MAX
from odradek.record import arrow, arrow_encode
from odradek.record import kernels as package
from odradek.record import survey as surveying
from odradek.record.arrow import decode_batches
from odradek.record.arrow_encode import RowEncoder
from odradek.record.compression import Codec
from odradek.record.kernels.decode import COMPILED
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.unpack import unpack

BATCHES = 16
BATCH_BYTES = 1_000_000
SIZES = (100, 1024)


def from_source(name: str) -> ModuleType:
    path = str(Path(package.__file__).parent / f"{name}.py")
    spec = spec_from_file_location(f"interpreted_{name}", path, loader=SourceFileLoader(f"interpreted_{name}", path))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def interpreted() -> Iterator[None]:
    """The kernels' source in place of what the compiler made of it."""
    decode, encode = from_source("decode"), from_source("encode")
    replaced = [(arrow, "Decoder", decode), (arrow_encode, "Encoder", encode), (arrow_encode, "Cells", encode)]
    replaced.append((surveying, "Survey", decode))
    before = [getattr(user, name) for user, name, _ in replaced]
    for user, name, module in replaced:
        setattr(user, name, getattr(module, name))
    yield
    for (user, name, _), value in zip(replaced, before, strict=True):
        setattr(user, name, value)


def values_of(size: int) -> pa.Array:
    return pa.array(
        [os.urandom(size // 2) + b"x" * (size - size // 2) for _ in range(BATCH_BYTES // size)], pa.binary()
    )


def rate(work: Callable[[], int], seconds: float) -> float:
    """Per second of processor time, the best of the repetitions: a neighbour only ever takes away."""
    best, end = 0.0, process_time() + seconds
    while best == 0 or process_time() < end:
        start = process_time()
        rows = work()
        best = max(best, rows / (process_time() - start))
    return best


def measure(size: int, codec: Codec, batches: int, seconds: float) -> tuple[float, float, float]:
    values = values_of(size)
    encoder = RowEncoder(values, now=1_700_000_000_000)
    log = b"".join(bytes(Batch.checked(encoder.encode(0, len(values), codec)).view) for _ in range(batches))
    decoded = rate(lambda: sum(table.num_rows for table in decode_batches(iter_batches(log), "topic", 0)), seconds)

    def encode() -> int:
        return sum(Batch.checked(encoder.encode(0, len(values), codec)).records_count for _ in range(batches))

    def survey() -> int:
        for batch in iter_batches(log):
            surveying.survey(batch, unpack(batch, INT32_MAX))
        return batches * len(values)

    return decoded, rate(encode, seconds), rate(survey, seconds)


def lines(build: str, batches: int, seconds: float) -> None:
    for size in SIZES:
        for codec in Codec:
            speeds = "   ".join(
                f"{each / 1e6:8.2f} M/s {each * size / 1e6:7.0f} MB/s"
                for each in measure(size, codec, batches, seconds)
            )
            print(f"{build:12} {size:5} B  {codec.name.lower():7} {speeds}", flush=True)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.3
    print(f"{'kernels':12} {'value':>7}  {'codec':7} {'log → Arrow':>25}   {'Arrow → batches':>25}   {'survey':>25}")
    if COMPILED:
        lines("compiled", BATCHES, seconds)
    else:
        print("the kernels are not compiled: run python setup.py build_ext --inplace", file=sys.stderr)
    with interpreted():
        lines("interpreted", 1, 0)


if __name__ == "__main__":
    main()
