"""Arguments and results of opening a partition's directory (log/recovery/recovery.py)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.base.uuids import Uuid
from odradek.log.files.disk import Disk
from odradek.log.files.log_config import LogConfig
from odradek.log.producers.leader_epoch_cache import LeaderEpochFileCache
from odradek.log.producers.producer_recovery import ProducerWalk
from odradek.log.producers.producer_state import ProducerStateManager
from odradek.log.producers.snapshots import Snapshots
from odradek.log.recovery.missing_segments import Gap
from odradek.log.recovery.quarantine import QuarantinedData
from odradek.log.segment.segment import Segment


@dataclass(slots=True)
class LoadedLog:
    """Content of an opened directory.

    `unsynced` holds sealed segments that a power failure could still damage.  `is_synced` is True if it could not
    damage the rest.
    """

    segments: list[Segment]
    start_offset: Offset
    end_offset: Offset
    recovery_point: Offset
    epochs: LeaderEpochFileCache
    producers: ProducerStateManager
    snapshots: Snapshots
    topic_id: Uuid | None
    unsynced: list[Segment]
    is_synced: bool
    lost_bytes: int
    aside: QuarantinedData | None


@dataclass(slots=True)
class LogOpenParams:
    """Arguments of one opening.

    `recorded_segments` lists the segments at the last clean shutdown, as checkpoints.read_segments returns them.
    `lost` holds the base offsets of segments that retention certainly did not delete.  In a log that its broker
    compacted, some of the listed segments may be missing legitimately.
    """

    disk: Disk
    directory: str
    config: LogConfig
    now_ms: TimestampMs
    recovery_point: Offset
    start_offset: Offset
    clean_shutdown: bool
    recorded_segments: str = ""
    was_compacted: bool = False
    lost: Collection[Offset] = ()
    repairs: bool = False  # Cut at a missing segment; treat no damage as a torn write.
    synced: Offset = field(init=False)
    gaps: list[Gap] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        assert self.recovery_point >= 0 <= self.start_offset
        self.synced = self.recovery_point  # recovery_point may be lowered if the files contradict a clean shutdown.


@dataclass(slots=True)
class Scan:
    """Result of checking the segments from number `first` on."""

    first: int
    end_offset: Offset
    trusted: bool
    walk: ProducerWalk
    epochs: list[tuple[LeaderEpoch, Offset]]
    lost_bytes: int = 0
    aside: QuarantinedData | None = None
