"""The producers of a log as of one offset, in .snapshot files as Apache Kafka's, so that recovery need not read all.

│  0 │ i16 │ version = 1                    │      each producer, 46 bytes
│  2 │ u32 │ CRC-32C of all below           │      │  0 │ i64 │ producer id                              │
│  6 │ i32 │ count                          │      │  8 │ i16 │ epoch                                    │
│ 10 │     │ producers                      │      │ 10 │ i32 │ last sequence, -1 for none               │
                                                    │ 14 │ i64 │ last offset, -1 for none                 │
                                                    │ 22 │ i32 │ last offset - first offset of that batch │
                                                    │ 26 │ i64 │ timestamp                                │
                                                    │ 34 │ i32 │ coordinator epoch                        │
                                                    │ 38 │ i64 │ first offset of the open transaction, -1 │

The name is the offset of the first record that is not in it: where a segment begins, or where the log ended at a clean
stop.  Kafka keeps the last batch of each producer.  Here one that has written several stands there for each of its last
five, the newest last: Kafka takes the last that it reads, and a producer that sends again what had no answer before a
restart is known by all of it.  A snapshot that is damaged, or was lost in a power failure, costs time: an older one is
taken, and the batches since then are read.
"""

from __future__ import annotations

import errno
from bisect import insort
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from struct import Struct

from odradek.base.units import GIB, NO_OFFSET, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.files.disk import Disk, DiskFailed, read_file, replace_file
from odradek.log.files.log_file_names import SNAPSHOT, segment_stem
from odradek.log.files.pending_work import Work
from odradek.log.producers.producer_state import BATCHES_KEPT, ProducerStateEntry, Sent
from odradek.record.crc import crc32c

SNAPSHOT_BYTES_MAX = GIB
_VERSION = 1
_HEAD = Struct(">hIi")
_CHECKSUMMED_FROM = 6
_COUNT = Struct(">i")
_PRODUCER = Struct(">qhiqiqiq")


class BadSnapshot(ValueError):
    """Raised for a file that is no snapshot, or not as it was written."""


class Snapshots:
    """The snapshots of one log: `offsets` are those of which there is one, ascending.  Methods may raise DiskFailed."""

    __slots__ = ("_directory", "_disk", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[Offset]) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: Offset) -> str:
        return f"{self._directory}/{segment_stem(offset)}{SNAPSHOT}"

    def moved_to(self, directory: str) -> None:
        """The files lie there from now on."""
        self._directory = directory

    def checked(self, offset: Offset) -> bool:
        """Returns True if there is a good snapshot as of `offset`; a bad one is deleted."""
        return offset in self.offsets and self.newest(offset)[1] == offset

    def write(self, offset: Offset, producers: Collection[ProducerStateEntry]) -> None:
        """Writes a snapshot without a sync: a power failure may take it, or leave other bytes in its place."""
        replace_file(self._disk, self.path(offset), encode_snapshot(producers), durable=False)
        if offset not in self.offsets:
            insort(self.offsets, offset)

    def try_to_write(self, offset: Offset, producers: Collection[ProducerStateEntry]) -> None:
        """Writes a snapshot that spares recovery some work; does without if it can't be written."""
        with suppress(DiskFailed):
            self.write(offset, producers)

    def keep(self, end: Offset, producers: Collection[ProducerStateEntry]) -> bool:
        """Keeps a snapshot as of a clean stop, which spares the next start a walk; True if it had to be written.

        Writes nothing for a log without idempotent producers.
        """
        if end in self.offsets or not (self.offsets or producers):
            return False
        self.write(end, producers)
        self.sync(end)
        return True

    def sync(self, offset: Offset) -> None:
        """Syncs a snapshot's file; its name is durable once the directory is synced."""
        self._disk.open(self.path(offset)).sync()

    def read(self, offset: Offset) -> list[ProducerStateEntry]:
        """Reads the snapshot as of `offset`.  Raises BadSnapshot."""
        path = self.path(offset)
        data = read_file(self._disk, path, SNAPSHOT_BYTES_MAX)
        if data is None:
            raise BadSnapshot(f"{path} is gone")
        try:
            return decode_snapshot(data)
        except ValueError as bad:
            raise BadSnapshot(f"{path}: {bad}") from None

    def newest(self, end: Offset) -> tuple[list[ProducerStateEntry], Offset]:
        """Returns the newest good snapshot not beyond `end` and its offset, -1 if there is none; deletes bad ones."""
        for offset in [offset for offset in reversed(self.offsets) if offset <= end]:
            try:
                return self.read(offset), offset
            except BadSnapshot:
                self.delete([offset])
        return [], NO_OFFSET

    def delete(self, offsets: Iterable[Offset]) -> None:
        gone = set(offsets)
        self.forget(gone)
        self.unlink(gone)

    def forgotten(self, offsets: Iterable[Offset]) -> Work:
        """Forgets the snapshots as of these offsets, and returns the work of unlinking them."""
        gone = tuple(offsets)
        self.forget(gone)
        return partial(self.unlink, gone)

    def unlink(self, offsets: Iterable[Offset]) -> None:
        """Unlinks the files of snapshots that are forgotten."""
        for offset in offsets:
            self._disk.unlink(self.path(offset))

    def beyond(self, end: Offset) -> list[Offset]:
        return [offset for offset in self.offsets if offset > end]

    def delete_beyond(self, end: Offset) -> None:
        self.delete(self.beyond(end))

    def delete_strays(self, segment_bases: Collection[Offset], end: Offset) -> None:
        """Deletes snapshots beyond the log's end, and those at whose offset no segment begins.

        Of the latter the newest stays if it is beyond the last segment's start: a clean stop wrote it.
        """
        self.delete_beyond(end)
        strays = [offset for offset in self.offsets if offset not in segment_bases]
        if strays and strays[-1] > max(segment_bases, default=end):
            strays.pop()
        self.delete(strays)

    def forget(self, offsets: Collection[Offset]) -> None:
        """Forgets snapshots that were deleted, or will be."""
        self.offsets = [offset for offset in self.offsets if offset not in offsets]


def left_open(disk: Disk, directory: str, offset: Offset) -> list[ProducerId]:
    """Returns the producers that have a transaction open by the snapshot as of `offset`; none if no good one is there.

    May run in any thread.  Raises DiskFailed.
    """
    try:
        producers = Snapshots(disk, directory, ()).read(offset)
    except BadSnapshot:
        return []
    return [producer.id for producer in producers if producer.has_open_transaction]


def make_safe(disk: Disk, path: str) -> None:
    """Syncs a snapshot, its name too, by which alone producers are known once the batches before it are gone.

    It is written once more before: a sync that failed has dropped what it should have written, and the next one would
    have nothing to say of it.  May run in any thread, also while another file gets that name.  Raises DiskFailed, also
    for a file that is not what was written any more.
    """
    file = disk.open(path)
    data = file.pread(0, file.size())
    try:
        decode_snapshot(data)
    except ValueError as bad:
        raise DiskFailed(errno.EIO, str(bad), path) from None
    file.write(0, data)
    file.sync()
    disk.sync_directory(path.rpartition("/")[0])


def encode_snapshot(producers: Collection[ProducerStateEntry]) -> bytes:
    entries = [_encoded(producer, sent) for producer in producers for sent in _batches(producer)]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(_VERSION, crc32c(body), len(entries)) + body[_COUNT.size :]


def _batches(producer: ProducerStateEntry) -> Iterator[Sent]:
    """Yields what stands for a producer, the newest last: that one has the producer's own time."""
    yield from producer.batches[:-1]
    sequence, offset, delta, _ = producer.batches[-1] if producer.batches else (-1, -1, 0, -1)
    yield sequence, offset, delta, producer.last_timestamp


def _encoded(producer: ProducerStateEntry, sent: Sent) -> bytes:
    sequence, offset, delta, timestamp = sent
    return _PRODUCER.pack(
        producer.id,
        producer.epoch,
        sequence,
        offset,
        delta,
        timestamp,
        producer.coordinator_epoch,
        producer.first_offset,
    )


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Decodes a snapshot file.  Raises ValueError for bytes that are none."""
    if len(data) < _HEAD.size:
        raise ValueError(f"{len(data)} bytes are too few")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"version {version} is not known")
    if crc32c(memoryview(data)[_CHECKSUMMED_FROM:]) != checksum:
        raise ValueError(f"the checksum is not {checksum:#010x}")
    if count < 0 or len(data) != _HEAD.size + count * _PRODUCER.size:
        raise ValueError(f"{count} entries in {len(data)} bytes")
    found: dict[ProducerId, ProducerStateEntry] = {}
    for fields in _PRODUCER.iter_unpack(data[_HEAD.size :]):
        producer = _decoded(*fields)
        known = found.get(producer.id)
        if known is not None and known.epoch == producer.epoch:
            batches = (*known.batches, *producer.batches)[-BATCHES_KEPT:]
            producer = producer._replace(batches=batches)
        found[producer.id] = producer
    return list(found.values())


def _decoded(  # noqa: PLR0917
    producer_id: int,
    epoch: int,
    sequence: int,
    offset: int,
    delta: int,
    timestamp: int,
    coordinator_epoch: int,
    first_offset: int,
) -> ProducerStateEntry:
    time = TimestampMs(timestamp)
    return ProducerStateEntry(
        ProducerId(producer_id),
        ProducerEpoch(epoch),
        ((sequence, offset, delta, timestamp),) if offset >= 0 else (),
        coordinator_epoch,
        Offset(max(first_offset, -1)),
        time,
    )
