"""State of one history of a log: the log, its expected contents, and its durable part."""

from __future__ import annotations

from random import Random

from odradek.base.units import TopicName, TopicPartition
from odradek.log.compaction.cleaner import Cleaning
from odradek.log.directory.directory import LogDirectory
from odradek.log.files.log_config import LogConfig
from odradek.log.log.flush import Flush
from odradek.log.log.log import Log
from odradek.log.removal.reaper import DueRemovals
from sim.logmodel import Model, Written
from sim.simdisk import SimDisk
from support.logs import T0

ROOT, NAME = "/data", TopicPartition(TopicName("t"), 0)
DAY_MS = 86_400_000


class LogState:
    """The state of one history, determined by its seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(f"log {seed}")
        self.lines: list[str] = []
        self.trace = ""
        self.disk = SimDisk()
        self.disk.reorders = random.random() < 0.5
        self.disk.drops_unsynced = random.random() < 0.5
        self.now = T0
        self.is_compacted = seed % 10 > 0  # In any other log, a hole is a loss.
        self.config = LogConfig(
            segment_bytes=random.choice([1_500, 4_000, 60_000]),
            index_interval_bytes=random.choice([0, 200, 4096]),
            segment_index_bytes=random.choice([64, 1 << 20]),
            cleanup_compact=self.is_compacted,
            cleanup_delete=random.random() < 0.25 or not self.is_compacted,
            retention_bytes=random.choice([-1, 6_000]),
            delete_retention_ms=random.choice([0, 60, DAY_MS]),
            min_compaction_lag_ms=random.choice([0, 0, 30]),
            file_delete_delay_ms=random.choice([0, 50]),
            log_append_time=random.random() < 0.2,
            preallocate=random.random() < 0.1,
        )
        self.has_faults = random.random() < 0.5
        self.keys = random.choice([3, 10, 40])
        self.model = Model()
        self.versions: list[list[Written]] = []  # Other states that a power failure may restore.
        self.killed: list[list[Written]] = []  # The same for killed processes, until `unsynced` are synced.
        self.unsynced: list[object] = []  # Unsynced names in the log's directory that a killed process has left.
        self.safe = 0  # Records below are durable.
        self.noted_start = 0  # In a checkpoint.
        self.latest_start = 0  # The greatest requested start.
        self.high_watermark = 0
        self.leader_epoch = 0
        self.cleaned_end = 0  # The greatest end of any pass.
        self.was_cut = False  # Below that.
        self.is_shortening = False  # A truncation is running, or was interrupted: the log may end anywhere above.
        self.producers_seen_to = 0  # By a pass: the batches it keeps for a producer may be truncated.
        self.may_forget = False
        self.empty_since = -1  # The log's end after a hole.
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.flushes: list[Flush] = []
        self.reap: DueRemovals | None = None
        self.cleaning: Cleaning | None = None
        self._is_in_thread = False
        self.is_stopping = False
        self.stopped_at = 0
        self.is_cutting = False  # Files that the log does not need are being renamed.
        self.was_killed_cutting = False  # The renames are not synced.
        self.directory: LogDirectory
        self.log: Log

    def add_event(self, event: str, detail: object = "") -> None:
        self.lines.append(f"{self.disk.calls:6} {self.now - T0:10} {event:<10} {detail}".rstrip())

    def __str__(self) -> str:
        return "\n".join(self.lines)
