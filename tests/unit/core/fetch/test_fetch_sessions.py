"""Fetch sessions (KIP-227): merging, epochs, eviction."""

from __future__ import annotations

import itertools

import pytest

from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode, Refused
from odradek.core.fetch import fetch_sessions
from odradek.core.fetch.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SESSIONLESS,
    CachedPartition,
    FetchContext,
    FetchKey,
    FetchSessions,
)
from odradek.core.kernel.purgatory import Purgatory


def sessions(limit: int = 10) -> FetchSessions:
    numbers = itertools.count(100)
    return FetchSessions(lambda: next(numbers), Purgatory(), limit)


def cached(*partitions: int, offset: int = 0) -> list[CachedPartition]:
    return [CachedPartition(FetchKey("t", partition), offset, 1000) for partition in partitions]


def begin(
    cache: FetchSessions,
    session_id: int,
    epoch: int,
    requested: list[CachedPartition],
    *,
    forgotten: tuple[FetchKey, ...] = (),
    steady: int = 0,
    uses_ids: bool = False,
) -> FetchContext:
    by_key = {one.key: one for one in requested}
    return whole(cache.begin_round(session_id, epoch, by_key, forgotten, uses_ids=uses_ids, steady=steady))


def partitions(fetch: FetchContext) -> list[int]:
    return [one.key.partition for one in fetch.due()]


def test_sessionless_fetch_is_not_cached() -> None:
    cache = sessions()
    fetch = begin(cache, 0, FINAL_EPOCH, cached(1, 2))
    assert (fetch.session_id, fetch.is_incremental, partitions(fetch)) == (SESSIONLESS, False, [1, 2])
    assert len(cache) == 0


def test_session_adds_changes_and_forgets_partitions() -> None:
    cache = sessions()
    opened = begin(cache, 0, INITIAL_EPOCH, cached(1, 2))
    assert opened.session_id == 100
    again = begin(cache, 100, 1, [])
    assert again.is_incremental and partitions(again) == [1, 2]
    changed = begin(cache, 100, 2, cached(2, 3, offset=7), forgotten=(FetchKey("t", 1),))
    assert partitions(changed) == [2, 3]
    assert [one.fetch_offset for one in changed.due()] == [7, 7]


@pytest.mark.parametrize(
    ("session_id", "epoch", "uses_ids", "code"),
    [
        (999, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (100, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (100, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_fetch_with_a_wrong_session_id_or_epoch_is_refused(
    session_id: int, epoch: int, uses_ids: bool, code: ErrorCode
) -> None:
    cache = sessions()
    begin(cache, 0, INITIAL_EPOCH, cached(1))
    with pytest.raises(Refused) as refused:
        begin(cache, session_id, epoch, [], uses_ids=uses_ids)
    assert refused.value.code is code


def test_final_epoch_closes_and_initial_epoch_replaces_a_session() -> None:
    cache = sessions()
    begin(cache, 0, INITIAL_EPOCH, cached(1))
    assert begin(cache, 100, INITIAL_EPOCH, cached(1)).session_id == 101
    assert len(cache) == 1
    begin(cache, 101, FINAL_EPOCH, cached(1))
    assert len(cache) == 0


def test_a_session_without_partitions_ends() -> None:
    cache = sessions()
    begin(cache, 0, INITIAL_EPOCH, cached(1))
    fetch = begin(cache, 100, 1, [], forgotten=(FetchKey("t", 1),))
    assert fetch.session_id == SESSIONLESS and fetch.partitions == []
    assert len(cache) == 0


def test_full_cache_evicts_the_longest_idle_session() -> None:
    cache = sessions(limit=2)
    begin(cache, 0, INITIAL_EPOCH, cached(1), steady=0)
    begin(cache, 0, INITIAL_EPOCH, cached(1), steady=1)
    assert begin(cache, 0, INITIAL_EPOCH, cached(1), steady=2).session_id == SESSIONLESS
    begin(cache, 100, 1, [], steady=3)
    assert begin(cache, 0, INITIAL_EPOCH, cached(1), steady=1 + EVICTION_MS).session_id not in (SESSIONLESS, 100, 101)
    assert begin(cache, 100, 2, [], steady=1 + EVICTION_MS).session_id == 100


def test_fetch_is_refused_if_its_session_ends_during_the_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = sessions()
    begin(cache, 0, INITIAL_EPOCH, cached(1))
    merging = cache.begin_round(100, 1, {one.key: one for one in cached(1, 2, 3)}, (), uses_ids=False, steady=0)
    next(merging)
    begin(cache, 100, FINAL_EPOCH, cached(1))
    with pytest.raises(Refused) as refused:
        whole(merging)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    monkeypatch.setattr(fetch_sessions, "FETCH_SESSION_PARTITIONS_MAX", 3)
    assert begin(cache, 0, INITIAL_EPOCH, cached(1, 2, 3)).session_id, "nothing of it counts any more"


def test_partition_limit_applies_to_all_sessions_together(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = sessions()
    monkeypatch.setattr(fetch_sessions, "FETCH_SESSION_PARTITIONS_MAX", 5)
    begin(cache, 0, INITIAL_EPOCH, cached(1, 2))
    begin(cache, 0, INITIAL_EPOCH, cached(1, 2))
    assert begin(cache, 0, INITIAL_EPOCH, cached(1, 2)).session_id == SESSIONLESS
    begin(cache, 100, 1, cached(2, 3))
    with pytest.raises(Refused) as refused:
        begin(cache, 101, 1, cached(3))
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    begin(cache, 100, 2, cached(4), forgotten=(FetchKey("t", 1), FetchKey("t", 9)))
    assert begin(cache, 0, INITIAL_EPOCH, cached(1, 2)).session_id


def test_served_partition_moves_to_the_end_of_the_session() -> None:
    cache = sessions()
    fetch = begin(cache, 0, INITIAL_EPOCH, cached(1, 2, 3))
    assert fetch.session is not None
    fetch.session.serve_last(fetch.session.partitions[FetchKey("t", 1)])
    assert partitions(begin(cache, 100, 1, [])) == [2, 3, 1]


def test_change_of_a_partition_is_sent_once() -> None:
    one = cached(1)[0]
    assert one.must_respond(5, 0)
    one.remember_sent(5, 0)
    assert not one.must_respond(5, 0)
    assert one.must_respond(6, 0) and one.must_respond(5, 1)
