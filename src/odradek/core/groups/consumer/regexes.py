"""Subscriptions by regular expression: a match is of a topic's whole name.

The pattern is whatever a client sends (core/patterns), so looking through all topics of a broker stays a matter of
milliseconds.

Differs from Kafka: a new pattern is held against the topics at once, and the answer brings partitions; there a thread
does it, and they come with a later heartbeat.  Internal topics match like any other, there as here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from odradek.base.errors import Refused
from odradek.base.units import SECOND_MS
from odradek.core.patterns import Pattern

_LOG = logging.getLogger(__name__)

RESOLVE_AGAIN_MS_MIN = 10 * SECOND_MS  # Between two looks at all topics for one group.


def check(pattern: str) -> None:
    """Raises Refused(INVALID_REGULAR_EXPRESSION)."""
    Pattern(pattern)


def matching(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """Nothing matches what another broker took for a pattern, and we can't compile."""
    try:
        compiled = Pattern(pattern)
    except Refused as refused:
        _LOG.error("a subscription is left out: %s", refused)
        return frozenset()
    return frozenset(topic for topic in topics if compiled.matches(topic))
