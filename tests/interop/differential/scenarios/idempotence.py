"""Idempotent producers: duplicates, gaps, older epochs, and the remembered producers."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import fetch, fetch_part, topic
from differential.base_transactions import init, numbered, producers_of, send
from differential.batches import THEN_MS
from differential.steps import BORDERLINE, NO_SUCH_PRODUCER, VALID, WRONG, Scenario, Step, producer, request_step
from odradek.base.units import INT16_MAX, INT32_MAX

INITS, PRODUCES = range(7), range(3, 14)
EPOCHS_SINCE, TWO_PHASE_SINCE = 3, 6
ACKS = (1, -1, 0)


def scenarios() -> list[Scenario]:
    return [
        *(Scenario(f"InitProducerId v{version} without a name", list(_inits(version))) for version in INITS),
        *(_numbers(version) for version in PRODUCES),
        _producers(),
        _stamped(),
    ]


def _inits(version: int) -> Iterator[Step]:
    def inits(text: str, form: str, transactional_id: str | None = None, **fields: int) -> Step:
        return request_step(text, form, init(transactional_id, **fields), version)  # type: ignore[arg-type]

    yield inits("plain", VALID)
    for timeout_ms in (-1, 0, INT32_MAX):
        yield inits(f"timeout {timeout_ms}", BORDERLINE, timeout_ms=timeout_ms)
    yield inits("name ''", WRONG, "")
    yield inits("name '', timeout 0", WRONG, "", timeout_ms=0)
    if version >= EPOCHS_SINCE:
        yield inits("id and epoch", BORDERLINE, producer_id=NO_SUCH_PRODUCER, epoch=3)
        yield inits("id only", WRONG, producer_id=NO_SUCH_PRODUCER)
        yield inits("epoch only", WRONG, epoch=3)
        yield inits("id -2", BORDERLINE, producer_id=-2, epoch=3)
    if version >= TWO_PHASE_SINCE:
        yield inits("two phases", BORDERLINE, two_phase=True)
        yield inits("keep what is prepared", BORDERLINE, keep=True)


def _numbers(version: int) -> Scenario:
    name = f"numbers-{version}"
    producer_name = f"numbers {version}"
    me = producer(producer_name)

    def sends(
        text: str, form: str, sequence: int, count: int = 1, *, epoch: int = 0, at: int = 0, acks: int = -1
    ) -> Step:
        return request_step(
            text, form, send(version, name, at, numbered(me, epoch, sequence, count), acks=acks), version
        )

    steps = [
        request_step("gets an id", VALID, init(None), 5, learns=producer_name),
        sends("two", VALID, 0, 2),
        sends("the third", VALID, 2),
        sends("the fourth", VALID, 3),
        sends("again the first two", BORDERLINE, 0, 2),
        sends("again the third", BORDERLINE, 2),
        sends("again the fourth, acks 1", BORDERLINE, 3, acks=1),
        sends("again the fourth, acks 0", BORDERLINE, 3, acks=0),
        sends("a gap", WRONG, 5),
        sends("one of them new", WRONG, 3, 2),
        sends("inside of one", WRONG, 1),
        sends("over two", WRONG, 2, 2),
        *(sends(f"number {number}", VALID, number) for number in range(4, 8)),
        sends("the first of six again", WRONG, 2),
        sends("the second of six again", BORDERLINE, 3),
        sends("a newer epoch, not from 0", WRONG, 8, epoch=1),
        sends("a newer epoch", VALID, 0, epoch=2),
        sends("the old epoch goes on", WRONG, 8),
        sends("again one of the old epoch", WRONG, 7),
        sends("again in the new epoch", BORDERLINE, 0, epoch=2),
        sends("epoch -2", WRONG, 1, epoch=-2),
        sends("the last epoch", VALID, 0, epoch=INT16_MAX),
        sends("begins with 5", BORDERLINE, 5, at=1),
        sends("goes back to 0", WRONG, 0, at=1),
        sends("goes on with 6", VALID, 6, at=1),
        sends("begins at the end", BORDERLINE, INT32_MAX, 2, at=2),
        sends("goes round", VALID, 1, at=2),
        sends("again around the end", BORDERLINE, INT32_MAX, 2, at=2),
        sends("negative number", WRONG, -1, at=3),
        sends("another negative number", WRONG, -5, at=3),
        sends("epoch -1", BORDERLINE, 0, epoch=-1, at=3),
        sends("no epoch, no number", WRONG, -1, epoch=-1, at=3),
        request_step("what is stored", VALID, fetch(12, [fetch_part(at, 0, 10_000) for at in range(4)], name), 12),
    ]
    return Scenario(f"Produce v{version} numbered", steps, [topic(name, 4)])


def _producers() -> Scenario:
    """Send DescribeProducers, and unassigned producer ids."""

    def sends(text: str, form: str, producer_id: int, epoch: int, sequence: int, **fields: int) -> Step:
        return request_step(text, form, send(9, "known", 0, numbered(producer_id, epoch, sequence, **fields)), 9)

    def describes(text: str, form: str, *topics: tuple[str, list[int]]) -> Step:
        return request_step(text, form, producers_of(*topics), 0)

    steps = [
        describes("nobody yet", VALID, ("known", [0])),
        sends("never given out", BORDERLINE, NO_SUCH_PRODUCER, 0, 0),
        sends("another", BORDERLINE, NO_SUCH_PRODUCER + 1, 4, 7),
        sends(
            "it goes on later", VALID, NO_SUCH_PRODUCER + 1, 4, 8, base_timestamp=THEN_MS + 9, max_timestamp=THEN_MS + 9
        ),
        sends("none, epoch 3, number 4", BORDERLINE, -1, 3, 4),
        sends("id -2", BORDERLINE, -2, 0, 0),
        describes("three", VALID, ("known", [0, 1])),
        describes("unknown ones", WRONG, ("known", [0, 99, -1]), ("nowhere-at-all", [0]), ("", [0])),
        describes("one twice", BORDERLINE, ("known", [0, 0]), ("known", [0])),
        describes("no partitions", BORDERLINE, ("known", [])),
        describes("no topics", BORDERLINE),
        request_step("two batches at once", WRONG, _two_batches(), 9),
    ]
    return Scenario("DescribeProducers idempotent", steps, [topic("known", 2)])


def _two_batches() -> object:
    batches = numbered(NO_SUCH_PRODUCER, 0, 1) + numbered(NO_SUCH_PRODUCER, 0, 2)
    return send(9, "known", 0, batches)


def _stamped() -> Scenario:
    """Send duplicates with log append time; the response contains the first append's time."""

    def sends(text: str, form: str, sequence: int) -> Step:
        return request_step(text, form, send(9, "stamped", 0, numbered(NO_SUCH_PRODUCER, 0, sequence)), 9)

    steps = [sends("first", VALID, 0), sends("second", VALID, 1), sends("first again", BORDERLINE, 0)]
    return Scenario(
        "Produce numbered, log append time", steps, [topic("stamped", message_timestamp_type="LogAppendTime")]
    )
