"""Common code of the Describe APIs: limit repeated names, and list rebalances.

Apache Kafka answers a name again each time that a request repeats it. This broker does so, too, up to a limit: eight
bytes that name a broker's configuration produce 30 KB of answer, and a group's name produces all its members.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.shard.history import Rebalances
from odradek.wire.messages.describe_groups import DescribedRebalance

REPEATS_MAX = 16  # No client needs more.


def check_repeats(names: Iterable[Hashable]) -> Parts[None]:
    """Raise Refused(INVALID_REQUEST) if names are repeated more than REPEATS_MAX times."""
    seen: set[Hashable] = set()
    for count, name in enumerate(names, 1):
        seen.add(name)
        if count - len(seen) > REPEATS_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, "the request repeats too many names")
        if not count % CHEAP:
            yield
    while seen:  # Freeing very many at once takes long.
        seen.pop()
        if not len(seen) % CHEAP:
            yield


def rebalances_of(group: Rebalances, is_requested: bool) -> list[DescribedRebalance]:
    """Return a group's rebalances, oldest first; only clients with our tagged field request them."""
    included = group if is_requested else ()
    return [
        DescribedRebalance(at_ms=rebalance.at, generation=rebalance.generation, reason=rebalance.reason)
        for rebalance in included
    ]
