"""Records and offsets in transactions: permitted writers, and visibility during and after the transaction."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import fetch, fetch_part, offsets
from differential.base_groups import (
    UNKNOWN_MEMBER,
    commit,
    delete_groups,
    delete_offsets,
    describe,
    fetch_offsets,
    join,
    sync,
)
from differential.base_transactions import (
    add,
    add_offsets,
    commit_offsets,
    end,
    numbered,
    producers_of,
    send,
    transaction,
)
from differential.batches import THEN_MS
from differential.scenarios.transactions import begun, described, of_transactions, sends
from differential.steps import (
    BORDERLINE,
    NO_SUCH_PRODUCER,
    VALID,
    WRONG,
    Ready,
    Scenario,
    Step,
    Taken,
    member,
    producer,
    request_step,
)
from differential.waits import TransactionIs, Wait
from odradek.record.record_batch import CONTROL, TRANSACTIONAL

OLD, NEW, FETCHES, LISTS, COMMITS = range(3, 12), range(12, 14), range(4, 19), range(2, 12), range(6)
ADDED_BY_BROKERS_SINCE, MEMBERS_SINCE = 5, 3  # Of TxnOffsetCommit.
Steps = Iterator[Step | Taken | Ready | Wait]


def scenarios() -> list[Scenario]:
    return [
        *(_scenario(f"Produce v{version} in transactions", _old(version), f"old-{version}") for version in OLD),
        *(_scenario(f"Produce v{version} in transactions", _new(version), f"new-{version}") for version in NEW),
        _scenario("read committed", _read(), "read"),
        *(_scenario(f"TxnOffsetCommit v{version} offsets", _offsets(version), f"txn-{version}") for version in COMMITS),
        *(_scenario(f"TxnOffsetCommit v{version} members", _members(version), f"txm-{version}") for version in COMMITS),
    ]


def _scenario(name: str, steps: Steps, at: str) -> Scenario:
    return Scenario(name, list(steps), [of_transactions(at, 4)])


def _stored(text: str, at: str, *parts: int) -> Step:
    return request_step(text, VALID, fetch(12, [fetch_part(index, 0, 100_000) for index in parts], at), 12)


class _Produces:
    """A sender of one producer's batches to one topic, in its transaction or in another one."""

    def __init__(self, version: int, name: str) -> None:
        self.version, self.name = version, name

    def __call__(self, text: str, form: str, epoch: int, sequence: int, at: int = 0) -> Step:
        return sends(text, self.version, self.name, epoch, sequence, at=at, to=self.name, form=form)

    def other(self, text: str, batch: bytes, named: str | None, at: int = 1) -> Step:
        return request_step(text, WRONG, send(self.version, self.name, at, batch, named), self.version)

    def others(self) -> Iterator[Step]:
        me = producer(self.name)
        yield self("epoch ahead", WRONG, 1, 0, 1)
        yield self("epoch behind", WRONG, -1, 0, 1)
        batch = numbered(me, 0, 0, transactional=True)
        yield self.other("without a transactional id", batch, None)
        yield self.other("with another transactional id", batch, "another")
        yield self.other("with transactional id ''", batch, "")
        yield self.other("by another producer", numbered(NO_SUCH_PRODUCER, 0, 0, transactional=True), self.name)
        yield self.other("by nobody", numbered(-1, -1, -1, transactional=True), self.name)
        if self.version in OLD:  # Later Kafka adds the partition before it refuses the batch.
            yield self.other("control batch", numbered(me, 0, 0, attributes=TRANSACTIONAL | CONTROL), self.name)
        yield self.other("not transactional", numbered(me, 0, 0), self.name)
        yield self.other("not transactional, without an id", numbered(me, 0, 0), None, 3)


def _old(version: int) -> Steps:
    """Play a producer that adds partitions itself."""
    name = f"old-{version}"
    me, produces = producer(name), _Produces(version, name)
    yield from begun(name)
    yield produces("before it is added", WRONG, 0, 0)
    yield request_step("adds two", VALID, add(3, transaction(name, me, 0, (name, [0, 1]))), 3)
    yield produces("first", VALID, 0, 0)
    yield produces("second", VALID, 0, 1)
    yield produces("second again", BORDERLINE, 0, 1)
    yield produces("a gap", WRONG, 0, 9)
    yield produces("begins with 5", WRONG, 0, 5, 1)
    yield produces("where it is not added", WRONG, 0, 0, 2)
    yield from produces.others()
    yield request_step("producers", VALID, producers_of((name, [0, 1])), 0)
    yield request_step("commits", VALID, end(name, me, 0), 3)
    yield TransactionIs(name, "CompleteCommit")
    yield produces("after that", WRONG, 0, 2)
    yield request_step("producers after that", VALID, producers_of((name, [0, 1])), 0)
    yield request_step("adds again", VALID, add(3, transaction(name, me, 0, (name, [0]))), 3)
    yield produces("goes on", VALID, 0, 2)
    yield request_step("aborts", VALID, end(name, me, 0, commit=False), 3)
    yield TransactionIs(name, "CompleteAbort")
    yield _stored("stored", name, 0, 1, 2)


def _new(version: int) -> Steps:
    """Let the broker add partitions on write, with an epoch for each transaction (KIP-890)."""
    name = f"new-{version}"
    me, produces = producer(name), _Produces(version, name)
    yield from begun(name)
    yield produces("first", VALID, 0, 0)
    yield produces("first again", BORDERLINE, 0, 0)
    yield produces("second", VALID, 0, 1)
    yield produces("a gap", WRONG, 0, 9)
    yield produces("begins with 5", WRONG, 0, 5, 2)
    yield from produces.others()
    yield described("open", name)
    yield request_step("commits", VALID, end(name, me, 0), 5)
    yield produces("at once in the next", VALID, 1, 0)
    yield produces("late in the last", WRONG, 0, 2)
    yield produces("late in the last, elsewhere", WRONG, 0, 0, 3)
    yield produces("goes on from the last", WRONG, 1, 2)
    yield described("open again", name)
    yield request_step("aborts", VALID, end(name, me, 1, commit=False), 5)
    yield TransactionIs(name, "CompleteAbort")
    yield request_step("producers", VALID, producers_of((name, [0, 1, 2, 3])), 0)
    yield produces("a third, with number 0", VALID, 2, 0)
    yield request_step("commits as of old", VALID, end(name, me, 2), 4)
    yield TransactionIs(name, "CompleteCommit")
    yield produces("a fourth goes on", VALID, 2, 1)
    yield request_step("commits the fourth", VALID, end(name, me, 2), 5)
    yield TransactionIs(name, "CompleteCommit")
    yield _stored("stored", name, 0, 1, 2)


def _read() -> Steps:
    """Play two producers in one partition: the first aborts late, the second commits early."""
    one, two, both = "read-one", "read-two", ("read-one", "read-two")
    for name in both:
        yield from begun(name)
    yield sends("one begins", 12, one, 0, 0, to="read")
    yield request_step("plain", VALID, send(9, "read", 0, numbered(-1, -1, -1)), 9)
    yield sends("two begins", 12, two, 0, 0, to="read")
    yield from _reads("both open")
    yield request_step("two commits", VALID, end(two, producer(two), 0), 5)
    yield TransactionIs(two, "CompleteCommit")
    yield from _reads("one open")
    yield request_step("one aborts", VALID, end(one, producer(one), 0, commit=False), 5)
    yield TransactionIs(one, "CompleteAbort")
    yield from _reads("none open")
    yield sends("one again", 12, one, 1, 0, to="read")
    yield request_step("one aborts again", VALID, end(one, producer(one), 1, commit=False), 5)
    yield TransactionIs(one, "CompleteAbort")
    yield from _reads("aborted twice")
    for version in FETCHES:
        for level in (0, 1):
            yield _read_from(f"fetch v{version}, level {level}", 0, level, version)
    for version in LISTS:
        for level in (0, 1):
            request = offsets([(0, -1), (1, -1)], "read", isolation_level=level)
            yield request_step(f"list v{version}, level {level}", VALID, request, version)


def _read_from(text: str, offset: int, level: int, version: int = 12) -> Step:
    return request_step(
        text, VALID, fetch(version, [fetch_part(0, offset, 100_000)], "read", isolation_level=level), version
    )


def _reads(when: str) -> Iterator[Step]:
    for offset in range(9):
        yield _read_from(f"{when}: from {offset}", offset, 1)
    yield _read_from(f"{when}: all of it", 0, 0)
    for timestamp in (-1, -2, -3, THEN_MS, THEN_MS + 1):
        for level in (0, 1):
            request = offsets([(0, timestamp)], "read", isolation_level=level)
            yield request_step(f"{when}: at {timestamp}, level {level}", VALID, request, 8)


def _offsets(version: int) -> Steps:
    """Send TxnOffsetCommit for a group without members."""
    name, group = f"txn-{version}", f"txn-group-{version}"
    me = producer(name)

    def commits(
        text: str,
        form: str,
        *given: tuple[str, int, int, str | None],
        transactional_id: str = name,
        producer_id: int = me,
        epoch: int = 0,
        of: str = group,
    ) -> Step:
        return request_step(text, form, commit_offsets(transactional_id, producer_id, epoch, of, *given), version)

    def fetched(text: str, *, stable: bool, of: int = 9) -> Step:
        return request_step(text, VALID, fetch_offsets(of, (group, [(name, [0, 1, 2])]), stable=stable), of)

    yield from begun(name)
    yield commits("before it is added", BORDERLINE, (name, 0, 5, "m"))
    yield described("added or not", name)
    yield request_step("adds the group", VALID, add_offsets(name, me, 0, group), 4)
    yield commits("one", VALID, (name, 0, 6, "m"))
    yield fetched("unstable", stable=True)
    yield fetched("unstable v7", stable=True, of=7)
    yield fetched("whatever is stable", stable=False)
    yield request_step("all, stable", VALID, fetch_offsets(9, (group, None), stable=True), 9)
    yield commits("some unknown", WRONG, (name, 1, 7, None), (name, 99, 7, ""), ("nowhere-at-all", 0, 7, ""))
    yield commits("too long metadata", WRONG, (name, 1, 8, "m" * 4097), (name, 0, 9, "n"))
    yield commits("nothing", BORDERLINE)
    yield commits("epoch ahead", WRONG, (name, 0, 10, ""), epoch=1)
    yield commits("epoch behind", WRONG, (name, 0, 10, ""), epoch=-1)
    yield commits("another producer", WRONG, (name, 0, 10, ""), producer_id=NO_SUCH_PRODUCER)
    yield commits("group ''", WRONG, (name, 0, 10, ""), of="")
    yield request_step("simple commit over it", VALID, commit(9, group, (name, 0, 500, "simple")), 9)
    yield commits("another partition", VALID, (name, 2, 11, "p"))
    yield fetched("with a simple one", stable=False)
    yield request_step("deletes one", VALID, delete_offsets(group, (name, [2])), 0)
    yield fetched("after that", stable=True)
    yield request_step("commits", VALID, end(name, me, 0), 5)
    yield TransactionIs(name, "CompleteCommit")
    yield fetched("committed", stable=True)
    yield request_step("adds the group again", VALID, add_offsets(name, me, 1, group), 4)
    yield commits("to be aborted", VALID, (name, 1, 99, "x"), epoch=1)
    yield request_step("aborts", VALID, end(name, me, 1, commit=False), 5)
    yield TransactionIs(name, "CompleteAbort")
    yield fetched("aborted", stable=True)
    yield commits("late", WRONG, (name, 1, 100, "x"), epoch=1)
    yield request_step("adds the group for the last", VALID, add_offsets(name, me, 2, group), 4)
    yield commits("to be deleted", VALID, (name, 1, 101, "x"), epoch=2)
    yield request_step("deletes the group", VALID, delete_groups(group), 2)
    yield request_step("no group", VALID, describe(6, group), 6)
    yield request_step("commits at last", VALID, end(name, me, 2), 5)
    yield TransactionIs(name, "CompleteCommit")
    yield fetched("nothing is left", stable=True)


def _members(version: int) -> Steps:
    """Send TxnOffsetCommit with the consumer's group metadata (KIP-447)."""
    name, group = f"txm-{version}", f"txm-group-{version}"
    me, consumer = producer(name), member(f"txm {version}")

    def commits(
        text: str, form: str, generation: int = -1, member_id: str = "", *, of: str = group, instance: str | None = None
    ) -> Step:
        given = (
            {"generation": generation, "member_id": member_id, "instance": instance} if version >= MEMBERS_SINCE else {}
        )
        request = commit_offsets(name, me, 0, of, (name, 0, 5, "m"), **given)  # type: ignore[arg-type]
        return request_step(text, form, request, version)

    yield from begun(name)
    yield request_step("adds the group", VALID, add_offsets(name, me, 0, group), 4)
    yield request_step("asks for an id", VALID, join(9, group), 9, learns=f"txm {version}")
    yield request_step("joins", VALID, join(9, group, consumer), 9)
    yield commits("while it completes", VALID, 1, consumer)
    yield request_step("syncs", VALID, sync(5, group, consumer, 1), 5)
    yield commits("good", VALID, 1, consumer)
    yield commits("as nobody", BORDERLINE)
    if version >= MEMBERS_SINCE:
        for generation, member_id in (
            (0, consumer),
            (2, consumer),
            (-1, consumer),
            (1, UNKNOWN_MEMBER),
            (1, ""),
            (-1, UNKNOWN_MEMBER),
        ):
            yield commits(f"generation {generation}, {member_id[-3:]!r}", WRONG, generation, member_id)
        yield commits("unknown instance", WRONG, 1, consumer, instance="i")
        yield commits("no group", WRONG, 1, consumer, of=f"{group}-other")
    yield commits("no group, as nobody", BORDERLINE, of=f"{group}-another")
    yield request_step("commits", VALID, end(name, me, 0), 5)
    yield TransactionIs(name, "CompleteCommit")
    for of in (group, f"{group}-other", f"{group}-another"):
        yield request_step(f"fetched of {of}", VALID, fetch_offsets(9, (of, None), stable=True), 9)
