"""Producer state of a log as of one offset, in Kafka's .snapshot files.

A snapshot saves recovery from reading the whole log.

│  0 │ i16 │ version = 1                    │      each producer, 46 bytes
│  2 │ u32 │ CRC-32C of all below           │      │  0 │ i64 │ producer id                              │
│  6 │ i32 │ count                          │      │  8 │ i16 │ epoch                                    │
│ 10 │     │ producers                      │      │ 10 │ i32 │ last sequence, -1 for none               │
                                                    │ 14 │ i64 │ last offset, -1 for none                 │
                                                    │ 22 │ i32 │ last offset - first offset of that batch │
                                                    │ 26 │ i64 │ timestamp                                │
                                                    │ 34 │ i32 │ coordinator epoch                        │
                                                    │ 38 │ i64 │ first offset of the open transaction, -1 │

The name is the offset of the first record that the snapshot does not cover: a segment's start, or the log's end at a
clean shutdown.  Kafka keeps the last batch of each producer.  Odradek writes one entry for each of a producer's last
five batches, the newest last.  Kafka uses the last entry that it reads.  All five identify a batch that a producer
resends after a restart because it received no response.  A snapshot that is damaged, or was lost in a power failure,
only costs time: recovery uses an older one and reads the batches after it.
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
    """Raised for a file that is not a snapshot, or not as it was written."""


class Snapshots:
    """Snapshots of one log, by their ascending `offsets`; methods may raise DiskFailed."""

    __slots__ = ("_directory", "_disk", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[Offset]) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: Offset) -> str:
        return f"{self._directory}/{segment_stem(offset)}{SNAPSHOT}"

    def set_directory(self, directory: str) -> None:
        """Use this directory from now on."""
        self._directory = directory

    def checked(self, offset: Offset) -> bool:
        """Return whether a good snapshot as of `offset` exists; delete a bad one."""
        return offset in self.offsets and self.newest(offset)[1] == offset

    def write(self, offset: Offset, producers: Collection[ProducerStateEntry]) -> None:
        """Write a snapshot without a sync; after a power failure it may be missing or contain other bytes."""
        replace_file(self._disk, self.path(offset), encode_snapshot(producers), durable=False)
        if offset not in self.offsets:
            insort(self.offsets, offset)

    def try_to_write(self, offset: Offset, producers: Collection[ProducerStateEntry]) -> None:
        """Write a snapshot that saves recovery work; ignore a disk failure."""
        with suppress(DiskFailed):
            self.write(offset, producers)

    def keep(self, end: Offset, producers: Collection[ProducerStateEntry]) -> bool:
        """Keep a snapshot as of a clean shutdown; return whether it had to be written.

        It saves the next start a walk.  Write nothing for a log without idempotent producers.
        """
        assert not self.offsets or self.offsets[-1] <= end, "no snapshot is beyond the end of the log"
        if end in self.offsets or not (self.offsets or producers):
            return False
        self.write(end, producers)
        self.sync(end)
        return True

    def sync(self, offset: Offset) -> None:
        """Sync a snapshot's file; its name is durable once the directory is synced."""
        self._disk.open(self.path(offset)).sync()

    def read(self, offset: Offset) -> list[ProducerStateEntry]:
        """Return the producers in the snapshot as of `offset`.  Raise BadSnapshot if it is damaged."""
        path = self.path(offset)
        data = read_file(self._disk, path, SNAPSHOT_BYTES_MAX)
        if data is None:
            raise BadSnapshot(f"{path} does not exist")
        try:
            return decode_snapshot(data)
        except ValueError as bad:
            raise BadSnapshot(f"{path}: {bad}") from None

    def newest(self, end: Offset) -> tuple[list[ProducerStateEntry], Offset]:
        """Return the newest good snapshot up to `end` and its offset, -1 if none; delete bad ones."""
        for offset in [offset for offset in reversed(self.offsets) if offset <= end]:
            try:
                return self.read(offset), offset
            except BadSnapshot:
                self.delete([offset])
        return [], NO_OFFSET

    def delete(self, offsets: Iterable[Offset]) -> None:
        removed = set(offsets)
        self.forget(removed)
        self.unlink(removed)

    def deletion_of(self, offsets: Iterable[Offset]) -> Work:
        """Forget the snapshots as of these offsets, and return the work that unlinks them."""
        removed = tuple(offsets)
        self.forget(removed)
        return partial(self.unlink, removed)

    def unlink(self, offsets: Iterable[Offset]) -> None:
        """Unlink the files of forgotten snapshots."""
        for offset in offsets:
            self._disk.unlink(self.path(offset))

    def beyond(self, end: Offset) -> list[Offset]:
        return [offset for offset in self.offsets if offset > end]

    def delete_beyond(self, end: Offset) -> None:
        self.delete(self.beyond(end))

    def delete_strays(self, segment_bases: Collection[Offset], end: Offset) -> None:
        """Delete snapshots beyond the log's end, and those at offsets where no segment begins.

        Of the latter, keep the newest if it is beyond the last segment's start, because a clean shutdown wrote
        it.
        """
        self.delete_beyond(end)
        strays = [offset for offset in self.offsets if offset not in segment_bases]
        if strays and strays[-1] > max(segment_bases, default=end):
            strays.pop()
        self.delete(strays)
        assert not self.offsets or self.offsets[-1] <= end, "no snapshot is beyond the end of the log"

    def forget(self, offsets: Collection[Offset]) -> None:
        """Forget snapshots that were deleted, or will be."""
        self.offsets = [offset for offset in self.offsets if offset not in offsets]


def open_producers(disk: Disk, directory: str, offset: Offset) -> list[ProducerId]:
    """Return the producers with an open transaction in the snapshot as of `offset`.

    Return none without a good snapshot.  This may run in any thread.  Raise DiskFailed if the disk fails.
    """
    try:
        producers = Snapshots(disk, directory, ()).read(offset)
    except BadSnapshot:
        return []
    return [producer.id for producer in producers if producer.has_open_transaction]


def make_safe(disk: Disk, path: str) -> None:
    """Sync a snapshot and its name before the batches that it replaces are deleted.

    Write it once more before the sync: a failed sync drops unwritten pages, and the next sync would not report
    that.  This may run in any thread, also while another file gets that name.  Raise DiskFailed, also for a file
    whose content has changed.
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
    data = _HEAD.pack(_VERSION, crc32c(body), len(entries)) + body[_COUNT.size :]
    assert len(data) == _HEAD.size + len(entries) * _PRODUCER.size, "decode_snapshot accepts no other size"
    return data


def _batches(producer: ProducerStateEntry) -> Iterator[Sent]:
    """Yield a producer's entries, the newest last and with the producer's own timestamp."""
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
    """Decode a snapshot file.  Raise ValueError for invalid bytes."""
    if len(data) < _HEAD.size:
        raise ValueError(f"{len(data)} bytes are too short for a snapshot")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"unsupported version {version}")
    if crc32c(memoryview(data)[_CHECKSUMMED_FROM:]) != checksum:
        raise ValueError(f"the checksum does not match {checksum:#010x}")
    if count < 0 or len(data) != _HEAD.size + count * _PRODUCER.size:
        raise ValueError(f"{count} entries do not fit {len(data)} bytes")
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
