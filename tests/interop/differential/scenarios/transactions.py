"""Transactions and their coordinator: ids and epochs, added partitions and groups, ends.

The topics keep all records in one segment, regardless of the markers' timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import topic
from differential.base_transactions import (
    BROKERS_SINCE,
    Parts,
    add,
    add_offsets,
    describe_transactions,
    end,
    init,
    numbered,
    send,
    transaction,
)
from differential.steps import (
    BORDERLINE,
    NO_SUCH_PRODUCER,
    VALID,
    WRONG,
    Ready,
    Scenario,
    Step,
    Taken,
    producer,
    request_step,
)
from differential.waits import TransactionIs, Wait
from odradek.base.units import INT32_MAX

INITS, ADDS, ENDS, OFFSETS = range(7), range(6), range(6), range(5)
EPOCHS_SINCE, FINDS_SINCE, NEW_EPOCHS_SINCE, TWO_PHASE_SINCE = 3, 4, 5, 6
TIMEOUT_MAX_MS = 900_000
NAME = "of-transactions"
Steps = Iterator[Step | Taken | Ready | Wait]


def scenarios() -> list[Scenario]:
    return [
        Scenario("topics of transactions", [], [of_transactions(NAME, 4)]),
        *(Scenario(f"InitProducerId v{version} named", list(_inits(version))) for version in INITS),
        *(Scenario(f"AddPartitionsToTxn v{version} partitions", list(_adds(version))) for version in ADDS),
        *(Scenario(f"AddOffsetsToTxn v{version} groups", list(_adds_offsets(version))) for version in OFFSETS),
        *(Scenario(f"EndTxn v{version} ends", list(_ends(version))) for version in ENDS),
    ]


def of_transactions(name: str, partitions: int = 1) -> object:
    return topic(name, partitions, segment_ms=str(2**62))


def described(text: str, *transactional_ids: str) -> Step:
    return request_step(text, VALID, describe_transactions(*transactional_ids), 0)


def begun(name: str) -> Iterator[Step]:
    """Return a new transactional id, whose producer has the same name."""
    yield request_step(f"{name} gets an id", VALID, init(name), 5, learns=name)


def sends(
    text: str,
    version: int,
    name: str,
    epoch: int,
    sequence: int,
    *,
    at: int = 0,
    to: str = NAME,
    form: str = VALID,
) -> Step:
    batch = numbered(producer(name), epoch, sequence, transactional=True)
    return request_step(text, form, send(version, to, at, batch, name), version)


def _inits(version: int) -> Steps:
    name = f"init-{version}"
    me = producer(name)

    def inits(text: str, form: str = VALID, at: str = name, *given: int, learns: str = "", **fields: object) -> Step:
        return request_step(text, form, init(at, *given, **fields), version, learns=learns)  # type: ignore[arg-type]

    yield inits("new", learns=name)
    yield inits("known")
    for timeout_ms in (-1, 0, TIMEOUT_MAX_MS + 1, INT32_MAX):
        yield inits(f"timeout {timeout_ms}", WRONG, timeout_ms=timeout_ms)
    for timeout_ms in (1, TIMEOUT_MAX_MS):
        yield inits(f"timeout {timeout_ms}", BORDERLINE, timeout_ms=timeout_ms)
    yield described("after that", name)
    if version >= EPOCHS_SINCE:
        yield from _recovers(version, name)
    if version >= TWO_PHASE_SINCE:
        for text, fields in (
            ("two phases", {"two_phase": True}),
            ("two phases, timeout 0", {"two_phase": True, "timeout_ms": 0}),
            ("both", {"two_phase": True, "keep": True}),
        ):
            yield inits(text, WRONG, **fields)
    current = 6 if version >= EPOCHS_SINCE else 3
    yield sends("begins", 12, name, current, 0)
    yield inits("while it is open")._replace(is_patient=True)
    yield sends("sends with the old epoch", 12, name, current, 1, form=WRONG)
    yield request_step("ends with the old epoch", WRONG, end(name, me, current), 5)
    yield described("at last", name)


def _recovers(version: int, name: str) -> Steps:
    """Send InitProducerId with the producer's former identity (KIP-360)."""
    me = producer(name)

    def inits(text: str, form: str, producer_id: int, epoch: int, at: str = name) -> Step:
        return request_step(text, form, init(at, producer_id, epoch), version)

    yield inits("goes on", VALID, me, 3)
    yield inits("goes on, asked again", BORDERLINE, me, 3)
    yield inits("goes on from there", VALID, me, 4)
    yield inits("epoch ahead", WRONG, me, 9)
    yield inits("epoch long gone", WRONG, me, 1)
    yield inits("another producer", WRONG, NO_SUCH_PRODUCER, 5)
    yield inits("id only", WRONG, me, -1)
    yield inits("epoch only", WRONG, -1, 5)
    yield inits("id -2", WRONG, -2, 5)
    yield inits("unknown name", WRONG, me, 5, at=f"{name}-other")
    yield described("what that leaves", name, f"{name}-other")
    yield sends("an open one", 12, name, 5, 0)
    yield inits("goes on while it is open", VALID, me, 5)._replace(is_patient=True)
    yield inits("asked again when it is aborted", BORDERLINE, me, 5)
    yield described("goes on at last", name)


def _adds(version: int) -> Steps:
    name = f"add-{version}"
    me = producer(name)

    def adds(
        text: str,
        form: str,
        *topics: tuple[str, list[int]],
        transactional_id: str = name,
        producer_id: int = me,
        epoch: int = 0,
        verify: bool = False,
    ) -> Step:
        return request_step(
            text, form, add(version, transaction(transactional_id, producer_id, epoch, *topics, verify=verify)), version
        )

    one: Parts = ((NAME, [0]),)
    yield from begun(name)
    yield adds("two", VALID, (NAME, [0, 1]))
    yield described("two of them", name)
    yield adds("two again", BORDERLINE, (NAME, [0, 1]))
    yield adds("one twice", BORDERLINE, (NAME, [2, 2]))
    yield from _added_wrong(version, name, verify=False)
    if version >= BROKERS_SINCE:
        yield adds("verifies", VALID, (NAME, [0, 3]), verify=True)
        yield from _added_wrong(version, name, verify=True)
        parts = transaction(name, me, 0, *one), transaction("nobody", me, 0, *one)
        yield request_step("two transactions", WRONG, add(version, *parts), version)
        if version == BROKERS_SINCE:
            yield request_step("no transactions", BORDERLINE, add(version), version)._replace(seconds_max=2)
    yield request_step("ends", VALID, end(name, me, 0), 4)
    yield TransactionIs(name, "CompleteCommit")
    yield described("ended", name)
    if version >= BROKERS_SINCE:
        yield adds("verifies what has ended", WRONG, *one, verify=True)
    yield adds("begins anew", VALID, *one)
    yield request_step("aborts", VALID, end(name, me, 0, commit=False), 4)
    yield TransactionIs(name, "CompleteAbort")


def _added_wrong(version: int, name: str, *, verify: bool) -> Iterator[Step]:
    me = producer(name)
    prefix = "verify: " if verify else ""

    def adds(
        text: str,
        form: str,
        *topics: tuple[str, list[int]],
        transactional_id: str = name,
        producer_id: int = me,
        epoch: int = 0,
    ) -> Step:
        request = transaction(transactional_id, producer_id, epoch, *topics, verify=verify)
        return request_step(f"{prefix}{text}", form, add(version, request), version)

    one: Parts = ((NAME, [0]),)
    yield adds("epoch ahead", WRONG, *one, epoch=1)
    yield adds("epoch behind", WRONG, *one, epoch=-1)
    yield adds("another producer", WRONG, *one, producer_id=NO_SUCH_PRODUCER)
    yield adds("unknown name", WRONG, *one, transactional_id="nobody")
    yield adds("name ''", WRONG, *one, transactional_id="")
    yield adds("some unknown", WRONG, (NAME, [1, 99, -1]), ("nowhere-at-all", [0]))
    yield adds("unknown name, some unknown", WRONG, (NAME, [1, 99]), transactional_id="nobody")
    yield adds("internal", WRONG, ("__consumer_offsets", [0]), (NAME, [0]))
    yield adds("no topics", BORDERLINE)
    yield adds("no partitions", BORDERLINE, (NAME, []))


def _adds_offsets(version: int) -> Steps:
    name = f"add-offsets-{version}"
    me = producer(name)

    def adds(
        text: str, form: str, *, transactional_id: str = name, producer_id: int = me, epoch: int = 0, group: str = "any"
    ) -> Step:
        return request_step(text, form, add_offsets(transactional_id, producer_id, epoch, group), version)

    yield from begun(name)
    yield adds("one", VALID)
    yield adds("another", VALID, group="other")
    yield adds("group ''", BORDERLINE, group="")
    yield adds("epoch ahead", WRONG, epoch=1)
    yield adds("epoch behind", WRONG, epoch=-1)
    yield adds("another producer", WRONG, producer_id=NO_SUCH_PRODUCER)
    yield adds("unknown name", WRONG, transactional_id="nobody")
    yield adds("name ''", WRONG, transactional_id="")
    yield described("added", name)
    yield request_step("aborts", VALID, end(name, me, 0, commit=False), 5)
    yield TransactionIs(name, "CompleteAbort")
    yield adds("with the old epoch", WRONG)


def _ends(version: int) -> Steps:
    name = f"end-{version}"
    me = producer(name)
    steps = 1 if version >= NEW_EPOCHS_SINCE else 0  # The increment of the epoch on each end.

    def ends(
        text: str, form: str, epoch: int, *, commit: bool = True, transactional_id: str = name, producer_id: int = me
    ) -> Step:
        return request_step(text, form, end(transactional_id, producer_id, epoch, commit), version)

    def adds(text: str, epoch: int) -> Step:
        return request_step(text, VALID, add(3, transaction(name, me, epoch, (NAME, [0, 1]))), 3)

    yield from begun(name)
    yield ends("commits nothing", WRONG, 0)
    yield adds("begins", 0)
    yield ends("epoch ahead", WRONG, 1)
    yield ends("epoch behind", WRONG, -1)
    yield ends("another producer", WRONG, 0, producer_id=NO_SUCH_PRODUCER)
    yield ends("unknown name", WRONG, 0, transactional_id="nobody")
    yield ends("name ''", WRONG, 0, transactional_id="")
    yield described("open", name)
    yield ends("commits", VALID, 0)
    yield TransactionIs(name, "CompleteCommit")
    yield described("committed", name)
    yield ends("commits again", BORDERLINE, 0)
    yield ends("aborts what is committed", WRONG, 0, commit=False)
    yield adds("begins again", steps)
    yield ends("aborts", VALID, steps, commit=False)
    yield TransactionIs(name, "CompleteAbort")
    yield described("aborted", name)
    yield ends("aborts again", BORDERLINE, steps, commit=False)
    yield ends("commits what is aborted", WRONG, steps)
    yield ends("commits nothing after all", WRONG, 2 * steps)
    yield ends("aborts nothing", BORDERLINE, 2 * steps, commit=False)
    yield TransactionIs(name, "CompleteAbort")
    yield described("aborted nothing", name)
    yield request_step("an earlier version with the first epoch", WRONG, end(name, me, 0), 4)
    yield request_step("an earlier version with the last epoch", WRONG, end(name, me, 3 * steps), 4)
