"""Loading of a data directory: lock, identity, clean-shutdown marker, then every partition.

    .lock → meta.properties → clean-shutdown marker read and removed → every partition opened

A partition that can't be opened does not affect the others: it is in `offline` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TypeAlias

from odradek.base.units import BrokerId, Offset, TimestampMs, TopicName, TopicPartition
from odradek.log.directory.directory import MARKER, LogDirectory
from odradek.log.files import log_file_names as names
from odradek.log.files.disk import Disk, DiskFailed, read_file
from odradek.log.files.disk_failures import SegmentMissing
from odradek.log.files.log_config import LogConfig
from odradek.log.files.meta_properties import claim
from odradek.log.log.log import FIRST_OFFSET, Log
from odradek.log.removal.reaper import NO_LOCK
from odradek.log.segment.checkpoints import BadCheckpoint, read_segments

Each: TypeAlias = Callable[[Callable[[Callable[[], None]], None], list[Callable[[], None]]], Iterable[None]]
_MARKER_BYTES_MAX = 4096


def make_durable_directory(disk: Disk, path: str) -> None:
    """Create a directory with its parents, so that its name survives a power failure.  Raise DiskFailed."""
    for changed in disk.make_directory(path):
        disk.sync_directory(changed)


def open_log_directory(
    disk: Disk,
    path: str,
    now_ms: TimestampMs,
    *,
    broker_id: BrokerId,
    cluster_id: str | None,
    config_of: Callable[[TopicName], LogConfig],
    turns: AbstractContextManager[object] = NO_LOCK,
    each: Each = map,
) -> LogDirectory:
    """Open a data directory, and create it if it does not exist.

    `turns` is a lock if checkpoints run in threads.  `each` opens the partitions, sequentially or several at a time
    in threads.
    Raise DirectoryInUse, WrongDirectory (of another broker or cluster) or DiskFailed.
    """
    path = path.rstrip("/") or "/"
    make_durable_directory(disk, path)
    lock = disk.lock(f"{path}/{names.LOCK}")
    try:
        cluster_id = claim(disk, path, now_ms, broker_id, cluster_id)
        directory = LogDirectory(disk, path, lock, cluster_id, turns)
        _load(directory, now_ms, config_of, each)
    except BaseException:
        lock.release()
        raise
    return directory


def _load(
    directory: LogDirectory, now_ms: TimestampMs, config_of: Callable[[TopicName], LogConfig], each: Each
) -> None:
    disk, path, checkpoints = directory.disk, directory.path, directory.checkpoints
    marker = f"{path}/{names.CLEAN_SHUTDOWN}"
    mark = read_file(disk, marker, _MARKER_BYTES_MAX)
    directory.clean_shutdown = mark is not None
    directory.is_undisturbed = mark == MARKER
    disk.unlink(f"{path}/{names.UNCLEANABLE}")  # Compaction of each log is tried again.
    directory.problems += directory.damages.load()
    recovery_points = checkpoints.read(names.RECOVERY_POINTS, directory.problems)
    starts = checkpoints.read(names.LOG_STARTS, directory.problems)
    checkpoints.high_watermarks = checkpoints.read(names.HIGH_WATERMARKS, directory.problems)
    _read_segments(directory)
    if directory.clean_shutdown:
        disk.unlink(marker)
        disk.sync_directory(path)
    found: list[Callable[[], None]] = []
    for entry in disk.entries(path):
        if entry.size >= 0:
            continue
        if names.mark(entry.name) == names.DELETE:
            directory.reaper.add_directory(f"{path}/{entry.name}", now_ms)
        future = names.partition_marked(entry.name, names.FUTURE)
        if future is not None:
            directory.begun_futures[f"{path}/{entry.name}"] = future
        partition = names.parse_partition(entry.name)
        if partition is not None:
            config = config_of(partition.topic)
            offsets = recovery_points.get(partition, FIRST_OFFSET), starts.get(partition, FIRST_OFFSET)
            found.append(partial(_load_partition, directory, partition, offsets, config, now_ms))
    for _ in each(_do, found):
        pass
    if directory.offline and (damages := directory.begin_damages(now_ms)) is not None:
        with suppress(DiskFailed):  # The next round of housekeeping repeats the write.
            damages.run()


def _do(work: Callable[[], None]) -> None:
    work()


def _read_segments(directory: LogDirectory) -> None:
    """Read the two files that reveal a missing segment; if one is damaged, report that and use neither."""
    problems = len(directory.problems)
    directory.checkpoints.compacted = directory.checkpoints.read(names.CLEANER_OFFSETS, directory.problems)
    try:
        directory.recorded_segments = read_segments(directory.disk, f"{directory.path}/{names.SEGMENTS}")
    except BadCheckpoint as bad:
        directory.problems.append(str(bad))
    if len(directory.problems) > problems:
        directory.recorded_segments = {}


def _load_partition(
    directory: LogDirectory,
    partition: TopicPartition,
    offsets: tuple[Offset, Offset],
    config: LogConfig,
    now_ms: TimestampMs,
) -> None:
    compacted = directory.checkpoints.compacted
    recorded_segments = directory.recorded_segments.get(partition, "")
    lost = directory.damages.missing(partition)
    if directory.is_undisturbed:
        lost += map(Offset, map(int, recorded_segments.split()))
    try:
        log = Log.open(
            directory.disk,
            directory.path_of(partition),
            config,
            now_ms,
            recovery_point=offsets[0],
            clean_shutdown=directory.clean_shutdown,
            start_offset=offsets[1],
            reaper=directory.reaper,
            recorded_segments=recorded_segments,
            was_compacted=partition in compacted,
            lost=lost,
        )
    except (DiskFailed, SegmentMissing, BadCheckpoint) as failure:
        if isinstance(failure, DiskFailed) and failure.is_full:
            directory.open_later(partition, failure, partial(_load_partition, directory, partition, offsets))
        else:
            directory.offline[partition] = str(failure)
        if isinstance(failure, SegmentMissing) and failure.lost is not None:
            directory.damages.note_missing(partition, failure.lost[0], Offset(failure.lost[1]), now_ms)
        return
    log.compaction.cleaned_to = compacted.get(partition, FIRST_OFFSET)
    if log.aside is not None:
        directory.problems.append(f"{partition}: {log.aside}")
    elif log.lost_bytes:
        directory.problems.append(
            f"{partition}: truncated {log.lost_bytes} bytes of an incomplete batch at the log end"
        )
    if log.aside is None and log.end_offset < offsets[0]:
        text = f"the log end offset {log.end_offset} is below the recovery point {offsets[0]}"
        directory.problems.append(f"{partition}: {text}")
    assert partition not in directory.offline, "a log is open or offline"
    directory.add(partition, log)
