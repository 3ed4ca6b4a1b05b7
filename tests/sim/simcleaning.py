"""Compaction of a world's topics, if any, and its record in the history."""

from __future__ import annotations

from random import Random

from odradek.base.units import INT64_MAX
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from sim.history import Compaction, History
from sim.simkeys import SimKeys

COMPACTED_SHARE, REQUESTED_SHARE = 0.4, 0.7
DELETE_RETENTIONS_MS = (0, 2_000, 86_400_000)
MIN_LAGS_MS = (0, 0, 1_000)


class SimCleaning:
    """The configs of compaction, drawn from the seed. Either all topics of a world are compacted, or none."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._random = Random(f"compaction {history.seed}")
        is_compacted = self._random.random() < COMPACTED_SHARE
        self.topic_configs = self._topic_configs() if is_compacted else {}
        self.keys = SimKeys(self._random, is_compacted=is_compacted)
        self.broker_configs = self._broker_configs() if is_compacted else {}
        self.is_requested = is_compacted and self._random.random() < REQUESTED_SHARE  # With CompactPartitions.

    def _topic_configs(self) -> dict[str, str]:
        choose = self._random.choice
        compaction = self._history.compaction = Compaction(choose(DELETE_RETENTIONS_MS), choose(MIN_LAGS_MS))
        return {
            "cleanup.policy": choose(("compact", "compact,delete")),
            "min.cleanable.dirty.ratio": choose(("0.01", "0.5")),
            "delete.retention.ms": str(compaction.delete_retention_ms),
            "min.compaction.lag.ms": str(compaction.min_lag_ms),
            "max.compaction.lag.ms": choose(("3000", str(INT64_MAX))),
            "internal.segment.bytes": choose(("700", "1500", "8000")),
            "segment.ms": choose(("1000", "5000", "604800000")),
        }

    def _broker_configs(self) -> dict[str, str]:
        choose = self._random.choice
        return {
            "log.cleaner.threads": choose(("1", "2")),
            "log.cleaner.io.buffer.size": choose(("600", "524288")),  # Below a batch, or above a segment.
        }

    def watch(self, event: Clean | Cleaned) -> None:
        """Note how far each pass may remove records before it does, and how many it removed."""
        step, history = event if isinstance(event, Clean) else event.step, self._history
        name, cleaning = step.partition.topic_partition, step.cleaning
        if isinstance(event, Clean):
            if cleaning.is_mapped:
                history.passed(name, cleaning.end)
        elif event.failure is not None:
            history.add("cleaner", "ended", f"{name} {event.failure!r}")
        elif cleaning.is_over:
            history.add("cleaner", "cleaned", f"{name} to {cleaning.end}: {cleaning.dropped_records} records went")
            history.dropped_records += cleaning.dropped_records
