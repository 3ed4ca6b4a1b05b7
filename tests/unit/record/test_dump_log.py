"""Apache Kafka's dump-log tool reads our batches with every codec from a segment file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.record.arrow_encode import encode_rows
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch

VERSION = "4.3.0"
PEERS = Path(os.environ.get("ODRADEK_PEERS", Path.home() / ".cache" / "odradek-peers"))
JARS = PEERS / f"kafka-{VERSION}" / "libs"
KEY_ROWS = 100

pytestmark = [pytest.mark.java, pytest.mark.waits]


@pytest.fixture(autouse=True)
def needs_kafka() -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    if not JARS.is_dir():
        pytest.skip(f"the jars of Apache Kafka {VERSION} are not in {JARS}; set ODRADEK_PEERS to where they are")


def rows(codec: Codec) -> list[RecordIn]:
    text = codec.name.lower().encode()
    few: list[RecordIn] = [(b"key%d" % i, b"%s-%d" % (text, i), [("h", b"x")], 1000 + i) for i in range(KEY_ROWS)]
    # More than one block of any framing, which compresses well in part.
    return [*few, (None, bytes(range(256)) * 2000 + os.urandom(100_000), (), 5000), (b"null", None, (), 1)]


def segment() -> bytes:
    data, offset = bytearray(), 0
    for codec in Codec:
        batch = Batch.checked(encode_batch(rows(codec), codec))
        batch.stamp(Offset(offset), LeaderEpoch(4))
        if codec is Codec.ZSTD:
            batch.stamp_log_append_time(TimestampMs(77_777))
        data += batch.view
        offset = batch.next_offset
    values = pa.array([b"arrow-%d" % i for i in range(50)], pa.binary())
    batch = Batch.checked(encode_rows(None, values, now=5, codec=Codec.LZ4))
    batch.stamp(Offset(offset), LeaderEpoch(4))
    return bytes(data + batch.view)


def dump(file: Path) -> str:
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", "org.apache.kafka.tools.DumpLogSegments"]
    arguments = ["--deep-iteration", "--print-data-log", "--files", str(file)]
    return subprocess.run(java + arguments, capture_output=True, check=True).stdout.decode(errors="replace")


BATCH_LINE = r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*? compresscodec: (\w+) .*? isvalid: (\w+)"


def payloads(name: str, out: str) -> list[int]:
    return [int(number) for number in re.findall(rf"payload: {name}-(\d+)$", out, re.MULTILINE)]


def test_kafkas_dump_log_reads_every_codec(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(segment())
    out = dump(file)
    found = re.findall(BATCH_LINE, out)
    count = KEY_ROWS + 2
    assert found[:-1] == [
        (str(i * count), str((i + 1) * count - 1), str(count), codec.name.lower(), "true")
        for i, codec in enumerate(Codec)
    ]
    assert found[-1] == (str(5 * count), str(5 * count + 49), "50", "lz4", "true")
    for codec in Codec:
        assert payloads(codec.name.lower(), out) == list(range(KEY_ROWS))
    assert payloads("arrow", out) == list(range(50))
    assert len(re.findall(r"LogAppendTime: 77777 keySize", out)) == count
    assert len(re.findall(r"headerKeys: \[h\] key: key", out)) == KEY_ROWS * len(Codec)
