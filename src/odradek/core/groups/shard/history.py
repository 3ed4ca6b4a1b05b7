"""The last rebalances of a group and their reasons: kept for DescribeGroups, and told in the broker's log."""

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
    """One rebalance.  `generation` is the one that ended with it: a generation of members, or an epoch of the group."""

    at: TimestampMs
    generation: int
    reason: str


class Rebalances(deque[Rebalance]):
    """The last rebalances of one group, the newest at the end."""

    def __init__(self) -> None:
        super().__init__(maxlen=REBALANCES_KEPT)

    def add(self, group_id: str, rebalance: Rebalance) -> None:
        self.append(rebalance)
        _LOG.info("group %r rebalances after generation %d: %s", group_id, rebalance.generation, rebalance.reason)


def because(what: str, reason: str) -> str:
    """Adds the client's own reason, if it gave one, made fit for one line of a log."""
    words = "".join(each if each.isprintable() else " " for each in reason[:REASON_CHARACTERS_MAX]).strip()
    return f"{what} ({words})" if words else what


def listed(names: Sequence[str]) -> str:
    """Joins names for a line of a log; of many only the first ones."""
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
