"""The arguments and results of opening a partition's directory: the values of recovery.py."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.base.uuids import Uuid
from odradek.log.files.disk import Disk
from odradek.log.files.log_config import LogConfig
from odradek.log.producers.leader_epoch_cache import LeaderEpochs
from odradek.log.producers.producer_recovery import ProducerWalk
from odradek.log.producers.producer_state import Producers
from odradek.log.producers.snapshots import Snapshots
from odradek.log.recovery.missing_segments import Gap
from odradek.log.recovery.quarantine import SetAside
from odradek.log.segment.segment import Segment


@dataclass(slots=True)
class Loaded:
    """What an opened directory holds.

    `unsynced`: sealed segments a power failure could still take something from; `is_synced`: it can't from the rest.
    """

    segments: list[Segment]
    start_offset: Offset
    end_offset: Offset
    recovery_point: Offset
    epochs: LeaderEpochs
    producers: Producers
    snapshots: Snapshots
    topic_id: Uuid | None
    unsynced: list[Segment]
    is_synced: bool
    lost_bytes: int
    aside: SetAside | None


@dataclass(slots=True)
class Opening:
    """The arguments of one opening, together.

    `noted` are the segments that were there at the last clean stop, as checkpoints.read_segments has them; `lost` those
    of which it is sure that no retention took them.  A log that was compacted by its broker may have lost some of them
    by right.
    """

    disk: Disk
    directory: str
    config: LogConfig
    now_ms: TimestampMs
    recovery_point: Offset
    start_offset: Offset
    clean_shutdown: bool
    noted: str = ""
    was_compacted: bool = False
    lost: Collection[Offset] = ()
    repairs: bool = False  # Cuts where a segment is missing, and takes nothing for a torn write.
    synced: Offset = field(init=False)
    gaps: list[Gap] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.synced = self.recovery_point  # That may be lowered, where a clean stop is contradicted.


@dataclass(slots=True)
class Scan:
    """The outcome of looking at the segments from number `first` on."""

    first: int
    end_offset: Offset
    trusted: bool
    walk: ProducerWalk
    epochs: list[tuple[LeaderEpoch, Offset]]
    lost_bytes: int = 0
    aside: SetAside | None = None
