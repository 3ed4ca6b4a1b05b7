"""What the APIs that describe things have in common.

Apache Kafka answers a name again each time that a request repeats it.  So do we, but not without end: eight bytes that
ask for a broker's configuration are answered with 30 KB, and a group's name with all its members.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from odradek.api.request.sliced_answer import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.shard.history import Rebalances
from odradek.wire.messages.describe_groups import DescribedRebalance

REPEATS_MAX = 16  # More than any client asks for.


def check_repeats(names: Iterable[Hashable]) -> Parts[None]:
    """Raises Refused(INVALID_REQUEST) if names are repeated more than REPEATS_MAX times."""
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


def rebalances_of(group: Rebalances, asked: bool) -> list[DescribedRebalance]:
    """Returns why a group has rebalanced, oldest first, for clients that ask for it by tagged fields of our own."""
    told = group if asked else ()
    return [DescribedRebalance(at_ms=one.at, generation=one.generation, reason=one.reason) for one in told]
