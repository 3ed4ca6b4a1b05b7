"""The last rebalances of a group with their reasons, for DescribeGroups and the broker's log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from odradek.base.units import TimestampMs

_LOG = logging.getLogger(__name__)

REBALANCES_KEPT = 16
REASON_CHARACTERS_MAX = 255  # KIP-800's limit for clients.
_NAMED_MAX = 5


class Rebalance(NamedTuple):
    """One rebalance; `generation` is the member generation or group epoch that it ended."""

    at: TimestampMs
    generation: int
    reason: str


class Rebalances(deque[Rebalance]):
    """The last rebalances of one group, the newest at the end."""

    def __init__(self) -> None:
        super().__init__(maxlen=REBALANCES_KEPT)

    def add(self, group_id: str, rebalance: Rebalance) -> None:
        self.append(rebalance)
        _LOG.info(
            "preparing to rebalance group %r with old generation %d (reason: %s)",
            group_id,
            rebalance.generation,
            rebalance.reason,
        )


def because(what: str, reason: str) -> str:
    """Append the client's own reason, if it sent one, cleaned up to fit on one log line."""
    words = "".join(each if each.isprintable() else " " for each in reason[:REASON_CHARACTERS_MAX]).strip()
    return f"{what} ({words})" if words else what


def listed(names: Sequence[str]) -> str:
    """Join names for a log line, listing only the first few."""
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
