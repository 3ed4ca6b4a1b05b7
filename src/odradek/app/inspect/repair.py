"""Offline repair of damaged logs: truncation as in recovery, with the removed data quarantined."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from odradek.app.inspect.verify import MARKER_BYTES_MAX, Folder
from odradek.base.units import TimestampMs, TopicPartition
from odradek.log.files import log_file_names as names
from odradek.log.files.disk import RealDisk, read_file, replace_file
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import close_log
from odradek.log.log.log import FIRST_OFFSET, Log
from odradek.log.recovery.missing_segments import segments_text
from odradek.log.recovery.quarantine import QuarantinedData
from odradek.log.segment.checkpoints import write_offsets, write_segments


def repair(
    folder: Folder, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[TopicPartition, QuarantinedData | None]]:
    """Truncate each log where it is damaged and rebuild its indexes. Raise OSError, DirectoryInUse.

    During the repair there is no clean-shutdown marker: if it is killed, the next broker that starts recovers the logs.
    """
    disk, marker = RealDisk(), f"{folder.path}/{names.CLEAN_SHUTDOWN}"
    lock = disk.lock(f"{folder.path}/{names.LOCK}")
    try:
        marker_content = read_file(disk, marker, MARKER_BYTES_MAX)
        disk.unlink(marker)
        disk.sync_directory(str(folder.path))
        for partition in partitions:
            yield partition, repair_log(disk, folder, partition)
        if marker_content is not None:
            replace_file(disk, marker, marker_content)
            disk.sync_directory(str(folder.path))
    finally:
        lock.release()


def repair_log(disk: RealDisk, folder: Folder, partition: TopicPartition) -> QuarantinedData | None:
    """Truncate one log and return the quarantined data.

    The checkpoints are updated before the next log starts.
    """
    now = TimestampMs(time.time_ns() // 1_000_000)
    log = Log.open(
        disk,
        f"{folder.path}/{partition}",
        LogConfig(),
        now,
        start_offset=folder.starts.get(partition, FIRST_OFFSET),
        recorded_segments=folder.recorded_segments.get(partition, ""),
        was_compacted=partition in folder.compacted,
        lost=folder.lost(partition),
        repairs=True,
    )
    close_log(log, now)
    folder.recovery_points[partition] = log.end_offset
    folder.recorded_segments[partition] = segments_text(log.segments)
    if log.start_offset > folder.starts.get(partition, FIRST_OFFSET):  # The beginning of the log is lost.
        folder.starts[partition] = log.start_offset
        write_offsets(disk, f"{folder.path}/{names.LOG_STARTS}", folder.starts)
    write_offsets(disk, f"{folder.path}/{names.RECOVERY_POINTS}", folder.recovery_points)
    write_segments(disk, f"{folder.path}/{names.SEGMENTS}", folder.recorded_segments)
    return log.aside
