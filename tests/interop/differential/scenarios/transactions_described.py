"""Descriptions of transactions and their markers; markers sent as a coordinator, and transaction timeouts."""

from __future__ import annotations

from collections.abc import Sequence

from differential.base_transactions import (
    MINUTE_MS,
    Parts,
    add,
    end,
    init,
    list_transactions,
    mark,
    marker,
    producers_of,
    transaction,
)
from differential.scenarios.transactions import NAME, Steps, begun, described, sends
from differential.steps import BORDERLINE, NO_SUCH_PRODUCER, VALID, WRONG, Scenario, Step, producer, request_step
from differential.waits import TransactionIs

MARKERS, LISTS = range(1, 3), range(3)


def scenarios() -> list[Scenario]:
    return [
        *(Scenario(f"WriteTxnMarkers v{version} markers", list(_marks(version))) for version in MARKERS),
        *(Scenario(f"ListTransactions v{version} filters", list(_lists(version))) for version in LISTS),
        Scenario("DescribeTransactions ids", list(_described())),
        Scenario("transactions that time out", list(_late())),
    ]


def _marks(version: int) -> Steps:
    """Send markers as a coordinator does: the broker does not verify the sender."""
    name = f"mark-{version}"
    me = producer(name)

    def marks(
        text: str, form: str, epoch: int, *topics: tuple[str, list[int]], producer_id: int = me, **fields: object
    ) -> Step:
        written = marker(producer_id, epoch, *topics, **fields)  # type: ignore[arg-type]
        return request_step(text, form, mark(written), version)

    one: Parts = ((NAME, [2]),)
    yield from begun(name)
    yield sends("begins", 12, name, 0, 0, at=2)
    yield marks("commits", VALID, 0, (NAME, [2, 99, -1]), ("nowhere-at-all", [0]))
    yield request_step("seen by", VALID, producers_of((NAME, [2])), 0)
    yield marks("commits again", BORDERLINE, 0, *one)
    yield marks("of a later coordinator", BORDERLINE, 0, *one, coordinator_epoch=5)
    yield marks("of an earlier coordinator", WRONG, 0, *one, coordinator_epoch=4)
    yield marks("coordinator epoch -1", WRONG, 0, *one, coordinator_epoch=-1)
    yield marks("newer epoch", BORDERLINE, 3, *one, coordinator_epoch=5)
    yield marks("older epoch", WRONG, 2, *one, coordinator_epoch=5)
    yield marks("nobody's", BORDERLINE, 1, *one, producer_id=NO_SUCH_PRODUCER + version, commit=False)
    yield marks("no topics", BORDERLINE, 3)
    two = marker(me, 3, *one, coordinator_epoch=5), marker(NO_SUCH_PRODUCER + version, 1, *one)
    yield request_step("two markers", WRONG, mark(*two), version)
    if version == 1:
        nowhere = marker(NO_SUCH_PRODUCER + version, 1, ("nowhere-at-all", [0]))
        yield request_step("two markers, one of nowhere", WRONG, mark(two[0], nowhere), version)._replace(seconds_max=2)
    yield request_step("no markers", BORDERLINE, mark(), version)
    if version >= 2:
        for version_of in (0, 1, 2, 3, -1):
            text = f"transaction version {version_of}"
            yield marks(text, BORDERLINE, 4 + version_of, *one, coordinator_epoch=5, version=version_of)
        yield marks("the same epoch, transaction version 2", WRONG, 7, *one, coordinator_epoch=5, version=2)
        yield marks("older epoch, transaction version 2", WRONG, 2, *one, coordinator_epoch=5, version=2)
    yield request_step("seen by at last", VALID, producers_of((NAME, [2])), 0)


def _lists(version: int) -> Steps:
    name = f"listed-{version}"
    me = producer(name)

    def lists(text: str, form: str, *filters: Sequence[object], **fields: object) -> Step:
        return request_step(text, form, list_transactions(*filters, **fields), version)  # type: ignore[arg-type]

    yield from begun(name)
    yield from begun(f"{name}-other")
    yield sends("begins", 12, name, 0, 0, at=3)
    yield lists("all", VALID)
    for states in (
        ["Ongoing"],
        ["Empty", "Ongoing"],
        ["ongoing"],
        ["Nonsense", "Empty"],
        ["CompleteCommit"],
        ["Dead", ""],
    ):
        yield lists(f"states {states}", BORDERLINE, states)
    yield lists("one producer", VALID, (), (me,))
    yield lists("producers that are none", BORDERLINE, (), (NO_SUCH_PRODUCER, -1))
    yield lists("one producer in another state", BORDERLINE, ["Empty"], (me,))
    if version >= 1:
        for duration_ms in (-2, 0, MINUTE_MS):
            yield lists(f"for {duration_ms} ms", BORDERLINE, duration_ms=duration_ms)
    if version >= 2:
        for pattern in (name, "listed", "listed.*", "", "(listed", ".*-other|x", "(?=listed).*"):
            yield lists(f"pattern {pattern!r}", BORDERLINE, pattern=pattern)
    yield request_step("ends", VALID, end(name, me, 0), 5)
    yield TransactionIs(name, "CompleteCommit")
    yield lists("all after that", VALID)


def _described() -> Steps:
    yield from begun("told")
    yield described("empty", "told")
    yield sends("begins", 12, "told", 0, 0)
    yield sends("goes on", 12, "told", 0, 0, at=1)
    yield described("open", "told")
    yield described("many", "told", "nobody", "", "told", "\u00e9")
    yield described("none")
    yield request_step("ends", VALID, end("told", producer("told"), 0), 5)
    yield TransactionIs("told", "CompleteCommit")
    yield described("committed", "told")


def _late() -> Steps:
    """Let the coordinator abort a transaction after its timeout."""
    name = "late"
    me = producer(name)
    yield request_step("gets an id for a moment", VALID, init(name, timeout_ms=300), 5, learns=name)
    yield sends("begins", 12, name, 0, 0)
    yield TransactionIs(name, "CompleteAbort")
    yield described("aborted", name)
    yield sends("goes on", 12, name, 0, 1, form=WRONG)
    yield request_step("adds", WRONG, add(3, transaction(name, me, 0, (NAME, [0]))), 3)
    yield request_step("commits", WRONG, end(name, me, 0), 5)
    yield request_step("aborts", BORDERLINE, end(name, me, 0, commit=False), 5)
    yield request_step("commits as of old", WRONG, end(name, me, 0), 4)
    yield request_step("recovers", VALID, init(name, me, 0), 5)
    yield described("recovered", name)
