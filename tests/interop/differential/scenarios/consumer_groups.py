"""Groups of the consumer protocol (KIP-848): members join, rebalance and leave, subscribed by names or patterns."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import topic
from differential.base_groups import (
    LONG_MS,
    UNKNOWN_MEMBER,
    beat,
    commit,
    delete_groups,
    describe,
    describe_consumers,
    leave,
    listed,
)
from differential.scenarios.groups import settled
from differential.steps import BORDERLINE, VALID, WRONG, Ready, Scenario, Step, Taken, request_step, short_member
from differential.waits import Wait

VERSIONS = range(2)
FOUR, TWO = "four-parts", "two-parts"
Steps = Iterator[Step | Taken | Ready | Wait]


def scenarios() -> list[Scenario]:
    return [
        Scenario("topics of consumers", [], [topic(FOUR, 4), topic(TWO, 2)]),
        *(Scenario(f"ConsumerGroupHeartbeat v{version} wrong", list(_wrong(version))) for version in VERSIONS),
        *(Scenario(f"ConsumerGroupHeartbeat v{version} alone", list(_alone(version))) for version in VERSIONS),
        *(Scenario(f"ConsumerGroupHeartbeat v{version} two", list(_two(version))) for version in VERSIONS),
        *(Scenario(f"ConsumerGroupHeartbeat v{version} static", list(_static(version))) for version in VERSIONS),
        *(Scenario(f"ConsumerGroupDescribe v{version} groups", list(_described(version))) for version in VERSIONS),
    ]


class Beats:
    """A builder of steps for one scenario with a fixed group and version."""

    def __init__(self, version: int, group: str) -> None:
        self.version, self.group = version, group

    def __call__(self, text: str, member_id: str, epoch: int, form: str = VALID, **fields: object) -> Step:
        request = beat(self.group, member_id, epoch, **fields)  # type: ignore[arg-type]
        return request_step(text, form, request, self.version)

    def joins(self, text: str, member_id: str, form: str = VALID, **fields: object) -> Step:
        whole = {"rebalance_ms": LONG_MS, "names": [FOUR], "owned": []} | fields
        return self(text, member_id, 0, form, **whole)

    def described(self, text: str) -> Step:
        return request_step(text, VALID, describe_consumers(self.group), 1)


def _wrong(version: int) -> Iterator[Step]:
    beats = Beats(version, f"c-wrong-{version}")
    yield request_step(
        "group ''", WRONG, beat("", UNKNOWN_MEMBER, 0, rebalance_ms=LONG_MS, names=[FOUR], owned=[]), version
    )
    for text, fields in (
        ("no timeout", {"rebalance_ms": -1}),
        ("owned null", {"owned": None}),
        ("owned something", {"owned": [(FOUR, [0])]}),
        ("subscribed to null", {"names": None}),
        ("instance ''", {"instance": ""}),
        ("rack ''", {"rack": ""}),
        ("unknown assignor", {"assignor": "other"}),
        ("assignor ''", {"assignor": ""}),
    ):
        yield beats.joins(f"join: {text}", "w", WRONG, **fields)
    for epoch in (-1, -2, -3, 1, 5):
        yield beats(f"epoch {epoch} of no group", "w", epoch, WRONG)
        yield beats(f"epoch {epoch} of no group, static", "w", epoch, WRONG, instance="i")
    yield beats("member ''", "", 1, WRONG)
    if version >= 1:
        yield beats.joins("join: member ''", "", WRONG)
        yield beats.joins("join: bad pattern", "w", WRONG, regex="(", names=None)
        yield beats.joins("join: pattern ''", "v", BORDERLINE, regex="", names=None)
    yield beats.joins("join: no topics", "n", BORDERLINE, names=[])
    yield beats.joins("join: topic ''", "n", BORDERLINE, names=[""])
    yield beats.joins("join: unknown topic", "n", BORDERLINE, names=["nowhere-at-all"])
    yield beats.joins("join: timeout 0", "t", BORDERLINE, rebalance_ms=0)
    for epoch in (-1, 1, 99):
        yield beats(f"epoch {epoch} of nobody", UNKNOWN_MEMBER, epoch, WRONG)
    yield beats("unknown assignor of nobody", UNKNOWN_MEMBER, 5, WRONG, assignor="other")
    yield beats.described("what came of it")


def _alone(version: int) -> Iterator[Step]:
    beats = Beats(version, f"c-alone-{version}")
    all_four = [(FOUR, [0, 1, 2, 3])]
    yield beats.joins("joins", "a")
    yield beats.described("joined")
    yield beats("beats", "a", 2)
    yield beats("tells what it owns", "a", 2, owned=all_four)
    yield beats("tells all", "a", 2, rebalance_ms=LONG_MS, names=[FOUR], owned=all_four)
    yield beats("tells its topics", "a", 2, names=[FOUR])
    yield beats("epoch too high", "a", 3, WRONG)
    yield beats("epoch too low", "a", 1, WRONG)
    yield beats("epoch 0 without all", "a", 0, WRONG)
    yield beats("leaves as static", "a", -2, WRONG)
    yield beats.joins("joins again", "a")
    yield beats("more topics", "a", 2, names=[FOUR, TWO])
    yield beats("the last epoch", "a", 2, WRONG)
    yield beats("the last epoch with what it owned", "a", 2, BORDERLINE, owned=all_four)
    yield beats("the last epoch with too much", "a", 2, WRONG, owned=[(FOUR, [0, 1, 2, 3]), (TWO, [0, 1, 9])])
    yield beats("owns what is not its", "a", 3, BORDERLINE, owned=[(TWO, [7])])
    yield beats("topics that are not there", "a", 3, names=["nowhere-at-all"])
    yield beats("still owns some", "a", 3, owned=all_four)
    yield beats("owns nothing more", "a", 3, owned=[])
    yield beats.described("with nothing")
    yield beats("a rack and a timeout", "a", 4, BORDERLINE, rack="r", rebalance_ms=1)
    yield beats.described("in a rack")
    yield beats("leaves", "a", -1)
    yield beats.described("empty")
    yield beats("leaves again", "a", -1, WRONG)
    yield beats.joins("joins after all", "a")
    if version == 0:
        first = beat(beats.group, "", 0, rebalance_ms=LONG_MS, names=[FOUR], owned=[])
        yield request_step("another gets an id", VALID, first, 0, learns="given")
        yield beats("it beats", short_member("given"), 6)
        yield beats("and leaves", short_member("given"), -1)
    yield request_step("deleted with a member", WRONG, delete_groups(beats.group), 2)
    yield request_step("as a classic group", WRONG, describe(6, beats.group), 6)
    yield request_step("as a dead one", WRONG, describe(5, beats.group), 5)


def _two(version: int) -> Iterator[Step]:
    beats = Beats(version, f"c-two-{version}")
    yield beats.joins("a joins", "a")
    yield beats("a has it", "a", 2, owned=[(FOUR, [0, 1, 2, 3])])
    yield beats.joins("b joins", "b")
    yield beats.described("while a has too much")
    yield beats("b waits", "b", 3, owned=[])
    yield beats("a is told", "a", 2)
    yield beats("a is told once", "a", 2)
    yield beats("a revokes nothing", "a", 2, owned=[(FOUR, [0, 1, 2, 3])])
    yield beats("a revokes one", "a", 2, owned=[(FOUR, [0, 1, 2])])
    yield beats("a revokes both", "a", 2, owned=[(FOUR, [0, 1])])
    yield beats.described("when a is done")
    yield beats("b gets its share", "b", 3)
    yield beats("b has it", "b", 3, owned=[(FOUR, [2, 3])])
    yield beats("a is told nothing", "a", 3)
    yield beats.joins("c joins", "c", names=[TWO])
    yield beats("b leaves", "b", -1)
    yield beats.described("b is gone")
    yield beats("c beats", "c", 4)
    yield beats("c is told", "c", 5)
    yield beats("a beats", "a", 3)
    yield beats("a beats in the next", "a", 4)
    yield beats("a has it all", "a", 5, owned=[(FOUR, [0, 1, 2, 3])])
    yield beats.described("the two of them")


def _static(version: int) -> Iterator[Step]:
    beats = Beats(version, f"c-static-{version}")
    yield beats.joins("first joins", "first", instance="i")
    yield beats("beats", "first", 2, instance="i")
    yield beats("beats without its name", "first", 2, BORDERLINE)
    yield beats("beats with another name", "first", 2, WRONG, instance="j")
    yield beats.joins("second joins", "second", WRONG, instance="i")
    yield beats("second beats", "second", 2, WRONG, instance="i")
    yield beats("second rests", "second", -2, WRONG, instance="i")
    yield beats("second leaves", "second", -1, WRONG, instance="i")
    yield beats("first rests", "first", -2, instance="i")
    yield beats.described("resting")
    yield beats("first beats while it rests", "first", 2, WRONG, instance="i")
    yield beats("first rests again", "first", -2, BORDERLINE, instance="i")
    yield beats.joins("second takes over", "second", instance="i")
    yield beats.described("taken over")
    yield beats("first beats", "first", 2, WRONG, instance="i")
    yield beats("first beats without a name", "first", 2, WRONG)
    yield request_step(
        "first commits",
        WRONG,
        commit(9, beats.group, (FOUR, 0, 1, ""), member_id="first", generation=2, instance="i"),
        9,
    )
    yield beats.joins("another instance", "other", instance="k")
    yield beats("second rests too", "second", -2, instance="i")
    yield beats.joins("third, with other topics", "third", instance="i", names=[TWO])
    yield beats.described("three")
    yield beats("third leaves for good", "third", -1, instance="i")
    for epoch in (-2, -1, 3):
        yield beats(f"epoch {epoch} of who is gone", "fourth", epoch, WRONG, instance="i")
    by_name = leave(5, beats.group, ("", "k"), ("", "l"), ("third", None))
    yield request_step("leaves the classic way", BORDERLINE, by_name, 5)
    yield beats.described("empty")


def _described(version: int) -> Iterator[Step]:
    group = f"c-described-{version}"

    def describes(text: str, form: str, *groups: str, operations: bool = False) -> Step:
        return request_step(text, form, describe_consumers(*groups, operations=operations), version)

    yield Beats(1, group).joins("joins", "a", instance="i", rack="r", assignor="range")
    yield from settled(9, f"{group}-classic", f"described classic {version}")
    yield describes("it", VALID, group)
    yield describes("with operations", VALID, group, operations=True)
    yield describes("many", WRONG, group, "nobody's", "", f"{group}-classic", operations=True)
    yield describes("one twice", BORDERLINE, group, group)
    yield describes("none", BORDERLINE)
    yield request_step("by type", VALID, listed(["stable"], ["CONSUMER"]), 5)
