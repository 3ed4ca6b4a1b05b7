"""Steps of the cleaner's passes, as effects, and statistics of all passes."""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.units import INT64_MAX, TimestampMs
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.partition.partition import Partition
from odradek.log.compaction.cleaner import Cleaning, CleaningAborted, Group, Options, Throttle, Uncleanable
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.record.batch_filter import RetentionRules

IO_BUFFERS = 2  # One for reading, one for writing: log.cleaner.io.buffer.size covers both.


class Clean(NamedTuple):
    """Effect: run the next step of a pass in a thread; it ends in a Cleaned."""

    partition: Partition
    cleaning: Cleaning

    def run(self, throttle: Throttle) -> Cleaned:
        try:
            if not self.cleaning.is_mapped:
                self.cleaning.build_map(throttle)
                return Cleaned(self, None, None)
            return Cleaned(self, self.cleaning.clean(throttle), None)
        except (CleaningAborted, Uncleanable, DiskFailed) as failure:
            # If the log was truncated during the step, the read may have failed on removed records.
            ended = CleaningAborted() if self.cleaning.is_withdrawn else failure.with_traceback(None)
            return Cleaned(self, None, ended)


class Cleaned(NamedTuple):
    """Result of a step."""

    step: Clean
    group: Group | None
    failure: CleaningAborted | Uncleanable | DiskFailed | None


class CleanerStats(NamedTuple):
    """Statistics of all passes since the start, of the last look and of the last pass.  Sizes in bytes."""

    passes: int = 0
    read_bytes: int = 0
    kept_bytes: int = 0
    dropped_records: int = 0
    max_dirty_ratio: float = 0.0
    last_recopied_ratio: float = 0.0

    def plus(self, cleaning: Cleaning) -> CleanerStats:
        return self._replace(
            passes=self.passes + 1,
            read_bytes=self.read_bytes + cleaning.read_bytes,
            kept_bytes=self.kept_bytes + cleaning.kept_bytes,
            dropped_records=self.dropped_records + cleaning.dropped_records,
            last_recopied_ratio=cleaning.kept_bytes / max(cleaning.read_bytes, 1),
        )


def cleaning_options(configs: BrokerConfigs, config: LogConfig, seed: bytes, now: TimestampMs) -> Options:
    """Return the options of a pass over a log: its share of the cleaner's memory, and the log's rules."""
    threads = max(configs.int("log.cleaner.threads"), 1)
    return Options(
        memory_bytes=configs.int("log.cleaner.dedupe.buffer.size") // threads,
        io_bytes=configs.int("log.cleaner.io.buffer.size") // threads // IO_BUFFERS,
        load_factor=configs.float("log.cleaner.io.buffer.load.factor"),
        seed=seed,
        rules=RetentionRules(
            now,
            TimestampMs(min(now + config.delete_retention_ms, INT64_MAX)),
            config.max_decompressed_message_bytes,
        ),
    )
