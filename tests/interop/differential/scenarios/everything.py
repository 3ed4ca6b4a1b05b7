"""All scenarios, in the order in which they are played."""

from __future__ import annotations

from functools import cache

from differential.scenarios import (
    configs,
    consumer_changes,
    consumer_groups,
    consumer_migrations,
    coordinators,
    describe,
    epochs,
    fetch,
    fetch_sessions,
    frames,
    group_offsets,
    groups,
    idempotence,
    metadata,
    offsets,
    produce,
    rebalances,
    records_deleted,
    systematic,
    topics,
    transactional,
    transactions,
    transactions_described,
)
from differential.steps import Scenario


@cache
def everything() -> list[Scenario]:
    return [
        *coordinators.first(),
        *metadata.first(),
        *systematic.scenarios(),
        *frames.scenarios(),
        *produce.scenarios(),
        *fetch.scenarios(),
        *fetch_sessions.scenarios(),
        *offsets.scenarios(),
        *epochs.scenarios(),
        *metadata.scenarios(),
        *topics.scenarios(),
        *describe.scenarios(),
        *configs.scenarios(),
        *records_deleted.scenarios(),
        *coordinators.scenarios(),
        *groups.scenarios(),
        *rebalances.scenarios(),
        *group_offsets.scenarios(),
        *consumer_groups.scenarios(),
        *consumer_changes.scenarios(),
        *consumer_migrations.scenarios(),
        *idempotence.scenarios(),
        *transactions.scenarios(),
        *transactions_described.scenarios(),
        *transactional.scenarios(),
    ]
