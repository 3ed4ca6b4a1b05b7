"""What a request names again and again: Apache Kafka answers it each time, and so do we, but not without end.

A name costs a few bytes, and its answer may be all that a group has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from odradek.base.errors import ErrorCode, Refused

REPEATED_NAMES_MAX = 10


def check(names: Iterable[Hashable]) -> None:
    """Raises Refused(INVALID_REQUEST) if one of them comes more often than any client would ask."""
    for name, count in Counter(names).most_common(1):
        if count > REPEATED_NAMES_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is asked for {count} times at once")
