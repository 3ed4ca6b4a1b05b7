"""A client that repeatedly fetches the committed offsets of groups."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException

from checker.history import Committed, Kind, Outcome, Step
from workload.settings import CALL_SECONDS_MAX
from workload.worker import PAUSE_SECONDS, Partition, Setting, Worker


class Teller(Worker):
    """A consumer for each group, without membership."""

    def __init__(self, setting: Setting, process: int, seed: int, groups: Sequence[str]) -> None:
        super().__init__(setting, process, seed)
        self._groups = groups

    def open(self) -> None:
        common = self.setting.clients.consumer()
        self._consumers = {group: Consumer(common | {"group.id": group}) for group in self._groups}

    def work(self) -> None:
        for group, consumer in self._consumers.items():
            steps: list[Step] = []
            self.setting.recorder.invoke(self.process, Kind.COMMITTED, group=group)
            try:
                steps = [Committed(self._committed(consumer))]
                outcome, error = Outcome.OK, ""
            except KafkaException as failed:
                outcome, error = Outcome.INFO, failed.args[0].name()
            self.setting.recorder.complete(self.process, outcome, steps, error)
        time.sleep(2 * PAUSE_SECONDS)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def _committed(self, consumer: Consumer) -> dict[str, int]:
        """Return the committed offsets by key; 0 if there is none."""
        found = {}
        for one in consumer.committed([one.at(0) for one in self.setting.partitions], CALL_SECONDS_MAX):
            if one.error is not None:
                raise KafkaException(one.error)
            found[Partition.of(one).key] = max(0, one.offset)
        return found
