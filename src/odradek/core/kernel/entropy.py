"""Randomness as an argument: the core never draws any by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.base.uuids import Uuid


class Entropy(NamedTuple):
    """The shell's randomness."""

    random_int31: Callable[[], int]
    new_uuid: Callable[[], Uuid]
