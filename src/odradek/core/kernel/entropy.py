"""Randomness as an argument: the core itself never draws random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.base.uuids import Uuid


class Entropy(NamedTuple):
    """Randomness of the shell."""

    random_int31: Callable[[], int]
    new_uuid: Callable[[], Uuid]
