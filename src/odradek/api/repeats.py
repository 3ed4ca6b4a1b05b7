"""What a request names again and again: Apache Kafka answers it each time, and so do we, but not without end.

Eight bytes that ask for a broker's configuration are answered with 30 KB, and a group's name with all its members.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from odradek.api.parts import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused

REPEATS_MAX = 16  # More than any client asks for.


def check(names: Iterable[Hashable]) -> Parts[None]:
    """Looks at each name.  Raises Refused(INVALID_REQUEST)."""
    seen: set[Hashable] = set()
    for count, name in enumerate(names, 1):
        seen.add(name)
        if count - len(seen) > REPEATS_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, "the same is named again and again")
        if not count % CHEAP:
            yield
    while seen:  # To free very many at once takes long.
        seen.pop()
        if not len(seen) % CHEAP:
            yield
