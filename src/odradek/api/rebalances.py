"""Why a group has rebalanced: told to who asks for it, by tagged fields of our own (wire/messages/describe_groups)."""

from __future__ import annotations

from odradek.core.groups.history import Rebalances
from odradek.wire.messages.describe_groups import DescribedRebalance


def described(rebalances: Rebalances, asked: bool) -> list[DescribedRebalance]:
    """The last ones, the newest at the end."""
    told = rebalances if asked else ()
    return [DescribedRebalance(at_ms=one.at, generation=one.generation, reason=one.reason) for one in told]
