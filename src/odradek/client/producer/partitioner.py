"""Which partition a record goes to when nobody says: as Kafka's default partitioner does, so that producers agree.

With a key: murmur2 of the key, modulo the number of partitions, so equal keys stay in order.  Without: one partition
for a whole batch, then another (KIP-480): full batches, and an even spread over time.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from odradek.base.units import INT32_MAX
from odradek.record.kernels.murmur import murmur2


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & INT32_MAX) % partitions


class Sticky:
    """The partition for records without a key is `current`; turn() after each full batch.

    A partition that is not `led` is chosen only where none is: what goes there waits for a leader.
    """

    __slots__ = ("_is_led", "_partitions", "current")

    def __init__(self, partitions: int, is_led: Callable[[int], bool] = lambda partition: True) -> None:
        self._partitions = partitions
        self._is_led = is_led
        self.current = random.randrange(partitions)
        if not is_led(self.current):
            self.turn()

    def turn(self) -> None:
        # Any other one: each producer goes its own way, so they do not move in step.
        if self._partitions == 1:
            return
        chosen = (self.current + random.randrange(1, self._partitions)) % self._partitions
        if not self._is_led(chosen):
            chosen = random.choice(list(filter(self._is_led, range(self._partitions))) or [chosen])
        self.current = chosen
