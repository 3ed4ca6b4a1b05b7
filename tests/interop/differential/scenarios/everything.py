"""All scenarios, in the order in which they are played."""

from __future__ import annotations

from functools import cache

from differential.scenarios import (
    describe,
    fetch,
    fetch_sessions,
    frames,
    metadata,
    offsets,
    produce,
    systematic,
    topics,
)
from differential.steps import Scenario


@cache
def everything() -> list[Scenario]:
    return [
        *metadata.first(),
        *systematic.scenarios(),
        *frames.scenarios(),
        *produce.scenarios(),
        *fetch.scenarios(),
        *fetch_sessions.scenarios(),
        *offsets.scenarios(),
        *metadata.scenarios(),
        *topics.scenarios(),
        *describe.scenarios(),
    ]
