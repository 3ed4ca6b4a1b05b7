"""Whether a workload has done enough for its history to tell anything; on a busy machine that takes longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from checker.history import Kind, Operation, Outcome


def is_enough(done: Iterable[Operation], seconds: float) -> bool:
    """True if of each kind more than one operation in two seconds went well."""
    counts = Counter(one.kind for one in done if one.outcome is Outcome.OK)
    return all(counts[kind] > seconds / 2 for kind in (Kind.SEND, Kind.TXN, Kind.POLL))
