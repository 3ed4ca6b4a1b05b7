"""What a request names again and again: Apache Kafka answers it each time, and so do we, but not without end.

Eight bytes that ask for a broker's configuration are answered with 30 KB, and a group's name with all its members.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from odradek.base.errors import ErrorCode, Refused

REPEATS_MAX = 16  # More than any client asks for.


def check(names: Sequence[Hashable]) -> None:
    """Raises Refused(INVALID_REQUEST)."""
    if len(names) - len(set(names)) > REPEATS_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, "the same is named again and again")
