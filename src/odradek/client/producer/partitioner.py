"""The partition of a record without an explicit one, as in Kafka's default partitioner.

With a key, it is murmur2 of the key modulo the number of partitions, so equal keys stay in order. Without a key, a
whole batch goes to one partition, the next batch to a different one (KIP-480). Batches are thus full, and the load is
even over time.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from odradek.base.units import INT32_MAX
from odradek.record.kernels.murmur import murmur2


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & INT32_MAX) % partitions


class StickyPartition:
    """The partition for records without a key is `current`; call turn() after each full batch.

    A partition without a leader is chosen only if no partition has one, because its records wait for a leader.
    """

    __slots__ = ("_is_led", "_partitions", "current")

    def __init__(self, partitions: int, is_led: Callable[[int], bool] = lambda partition: True) -> None:
        self._partitions = partitions
        self._is_led = is_led
        self.current = random.randrange(partitions)
        if not is_led(self.current):
            self.turn()

    def turn(self) -> None:
        # The choice is random, so that producers do not move in step.
        if self._partitions == 1:
            return
        chosen = (self.current + random.randrange(1, self._partitions)) % self._partitions
        if not self._is_led(chosen):
            chosen = random.choice(list(filter(self._is_led, range(self._partitions))) or [chosen])
        self.current = chosen
