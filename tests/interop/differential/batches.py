"""Record batches with the same bytes on every machine: valid ones, and arbitrary headers with a valid checksum.

The compressed ones are stored as bytes, since other library versions compress differently.
"""

from __future__ import annotations

from odradek.base.units import TimestampMs
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.crc import crc32c
from odradek.record.record_batch import CHECKSUMMED_FROM, CRC_POSITION, HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES

THEN_MS = 1_700_000_000_000
FIELDS = (
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records_count",
)
RECORDS: list[RecordIn] = [
    (b"k", b"v" * 40, (), THEN_MS),
    (None, None, (("h", b"x"), ("n", None)), THEN_MS + 5),
]
PACKED = {
    1: "1f8b08000000000000038b63606060ca0e28231230483170313132b23065305530e53102008958eb023e000000",
    2: "82534e415050590000000001000000010000001d3e1c5e000000026b50769a010038001a000a0201010402680278026e01",
    3: "04224d186040821d0000008f5e000000026b5076010014f000001a000a0201010402680278026e0100000000",
    4: "28b52ffd203eed0000b85e000000026b5076001a000a0201010402680278026e0101004ac005",
}
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def batch(timestamp: int = THEN_MS, **fields: int) -> bytes:
    """Return a batch of two small records with changed header `fields` and a valid checksum."""
    records: list[RecordIn] = [(b"k", b"v", (), timestamp), (None, None, (), timestamp + 5)]
    return headed(bytes(encode_batch(records)), **fields)


def headed(data: bytes, **fields: int) -> bytes:
    """Return the batch with changed header fields, and a valid checksum unless `crc` is one of them."""
    values = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True)) | fields
    out = bytearray(HEADER.pack(*values.values()) + data[HEADER_BYTES:])
    return bytes(out) if "crc" in fields else resealed(out)


def resealed(data: bytes | bytearray) -> bytes:
    """Return the same bytes with a valid checksum."""
    out = bytearray(data)
    out[CRC_POSITION:CHECKSUMMED_FROM] = crc32c(memoryview(out)[CHECKSUMMED_FROM:]).to_bytes(4)
    return bytes(out)


def of_payload(payload: bytes, *, codec: int = 0, count: int = 2, **fields: int) -> bytes:
    """Return a batch whose records are arbitrary bytes."""
    front = bytes(encode_batch(RECORDS))[:HEADER_BYTES]
    length = len(payload) + HEADER_BYTES - LOG_OVERHEAD_BYTES
    known = {"batch_length": length, "attributes": codec, "records_count": count, "last_offset_delta": count - 1}
    return headed(front + payload, **(known | fields))


def compressed(codec: int) -> bytes:
    """Return a batch with the two RECORDS, compressed."""
    return of_payload(bytes.fromhex(PACKED[codec]), codec=codec)


def one(key: bytes | None, value: bytes | None, timestamp: int = THEN_MS) -> bytes:
    return bytes(encode_batch([(key, value, (), TimestampMs(timestamp))]))
