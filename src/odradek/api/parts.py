"""Answers to requests of many elements are made in parts: a generator yields between elements and returns the whole.

Where it yields nothing is half done: whoever drives it may let others have a turn there.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

Result = TypeVar("Result")
Parts: TypeAlias = Generator[None, None, Result]


def whole(parts: Parts[Result]) -> Result:
    """All parts at once."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: Result = end.value
            return result
