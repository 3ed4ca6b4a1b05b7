"""Similar requests, damaged now and then, for tests of request templates."""

from __future__ import annotations

import struct
from random import Random

ONE_TOO_LONG = 0.02  # The share of frames with an extra byte.
HEADER_BYTES = 20  # Size, API, version, correlation id, and the part of the client id that is never damaged.


class Usual:
    """A choice of the usual value with probability `share`, else of one of the others."""

    def __init__(self, random: Random, share: float) -> None:
        self._random = random
        self._share = share

    def __call__(self, usual: int, *others: int) -> int:
        return usual if self._random.random() < self._share else self._random.choice(others)


class Damage:
    """A change of the same bits of a byte, counted from the end, so that the value is equally wrong again."""

    def __init__(self, random: Random, from_end_max: int, share: float) -> None:
        """Create a damage; `share` is the share of damaged frames."""
        self._random = random
        self._share = share
        self._from_end = random.randint(1, from_end_max)
        self._bits = random.choice([1, 2, 127, 128])

    def hit(self, frame: bytearray) -> None:
        if self._random.random() < self._share:
            frame[max(len(frame) - self._from_end, HEADER_BYTES)] ^= self._bits


def lengthen(frame: bytearray, random: Random) -> None:
    """Extend the frame now and then by a byte that its own size counts."""
    if random.random() < ONE_TOO_LONG:
        frame += b"\0"
        struct.pack_into(">i", frame, 0, len(frame) - 4)
