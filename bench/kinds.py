"""Who makes the load of each kind of case."""

from __future__ import annotations

from collections.abc import Callable

import work
import work_groups
import work_many
import work_sessions
import work_transactions
from cases import Case
from work import Budget, Numbers, Target

KINDS: dict[str, Callable[[Target, Case, Budget, float], Numbers]] = {
    "produce": work.produce,
    "consume": work.consume,
    "latency": work.latency,
    "librdkafka_produce": work.librdkafka_produce,
    "librdkafka_consume": work.librdkafka_consume,
    "many_producers": work_many.producers,
    "many_waiters": work_many.waiters,
    "sessions_deliveries": work_sessions.deliveries,
    "sessions_nothing_new": work_sessions.nothing_new,
    "groups": work_groups.groups,
    "commits": work_groups.commits,
    "idempotent": work_transactions.idempotent,
    "librdkafka_idempotent": work_transactions.librdkafka_idempotent,
    "transactions": work_transactions.transactions,
}
