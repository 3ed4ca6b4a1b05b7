"""All that was found in a history, and whether a broker that did it has broken what Kafka promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from checker import cycles, groups, order, values
from checker.anomaly import Anomaly, Found
from checker.history import Operation, Value
from checker.observed import NOTHING_REMOVED, Observed

# What is unseen may yet be seen.  Transactions open at once may write in any order, and polls are no snapshots.
NOT_PROMISED = frozenset((Anomaly.UNSEEN, Anomaly.G0, Anomaly.G1C_WW, Anomaly.G_SINGLE, Anomaly.G2))
SHOWN_MAX = 5

SEARCHES: tuple[Callable[[Observed], Iterator[Found]], ...] = (
    values.unread,
    values.duplicates,
    values.inconsistent_offsets,
    values.unsent_reads,
    values.aborted_reads,
    values.precommitted_reads,
    groups.consumed_twice,
    groups.never_consumed,
    groups.committed_back,
    order.polls,
    order.sends,
    order.late_sends,
    cycles.cycles,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    broken: tuple[Found, ...]  # Promises.
    reported: tuple[Found, ...]  # Worth knowing, and allowed.

    def __str__(self) -> str:
        return "\n".join([*_lines("broken", self.broken), *_lines("reported", self.reported)]) or "nothing found"


def _lines(title: str, found: tuple[Found, ...]) -> Iterator[str]:
    counts = Counter(one.anomaly for one in found)
    for anomaly, count in counts.items():
        yield f"{title}: {count} × {anomaly}"
        yield from [f"    {one.text}" for one in found if one.anomaly is anomaly][:SHOWN_MAX]


def check(
    operations: Iterable[Operation],
    not_promised: Collection[Anomaly] = NOT_PROMISED,
    may_go_ns: Mapping[Value, int] = NOTHING_REMOVED,
) -> Verdict:
    observed = Observed(operations, may_go_ns)
    everything = [found for search in SEARCHES for found in search(observed)]
    return Verdict(
        broken=tuple(found for found in everything if found.anomaly not in not_promised),
        reported=tuple(found for found in everything if found.anomaly in not_promised),
    )
