"""Changes of consumer-protocol groups: patterns, assignors, slow members, group sizes, changed topics."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import delete, grow, topic
from differential.scenarios.consumer_groups import FOUR, TWO, Beats, Steps
from differential.steps import VALID, WRONG, Ready, Scenario, Step, request_step
from differential.waits import ConsumerGroupIs, GroupsSee

SHORT_MS = 400
GROWING = "growing-parts"


def scenarios() -> list[Scenario]:
    return [
        Scenario("consumer groups by pattern", list(_patterns())),
        Scenario("consumer groups by assignor", list(_assignors())),
        Scenario("consumer groups that are full", list(_full())),
        Scenario("consumer groups that are slow", list(_slow())),
        Scenario("consumer groups of changing topics", list(_changing()), [topic(GROWING, 1)]),
    ]


def _patterns() -> Steps:
    beats = Beats(1, "c-patterns")
    yield beats.joins("joins with a pattern", "a", names=None, regex="(four|two)-parts")
    yield ConsumerGroupIs(beats.group, 2)
    yield beats.joins("joins again when it is known what fits", "a", names=None, regex="(four|two)-parts")
    yield beats("beats", "a", 2)
    yield beats.described("fitting")
    yield beats("bad pattern", "a", 2, WRONG, regex="(four")
    yield beats("look behind", "a", 2, WRONG, regex="four(?=-parts)")
    yield beats("bad pattern, wrong epoch", "a", 1, WRONG, regex="(four")
    yield beats("names as well", "a", 2, names=[TWO], owned=[(FOUR, [0, 1, 2, 3]), (TWO, [0, 1])])
    yield beats("without the pattern", "a", 2, regex="", owned=[(FOUR, [0, 1, 2, 3]), (TWO, [0, 1])])
    yield beats.described("by name")
    yield beats("gave it up", "a", 2, owned=[(TWO, [0, 1])])
    yield beats.described("gave up")
    yield beats("leaves", "a", -1)


def _assignors() -> Iterator[Step]:
    """Play three members with both assignors. With two topics the uniform one depends on their random ids."""
    for assignor, names in (("uniform", [FOUR]), ("range", [FOUR, TWO])):
        beats = Beats(1, f"c-{assignor}")
        for number, name in enumerate("abc"):
            yield beats.joins(f"{assignor}: {name} joins", name, names=names, assignor=assignor)
            yield beats.described(f"{assignor}: {number + 1} members")
        yield beats(f"{assignor}: a gives all up", "a", 2, owned=[])
        yield beats(f"{assignor}: b gets some", "b", 3, owned=[])
        yield beats(f"{assignor}: c gets some", "c", 4, owned=[])
        yield beats.described(f"{assignor}: given")
    yield beats("another assignor", "a", 4, assignor="uniform")
    yield beats.described("one of three wants another")
    # Since 4.4 the group switches to the uniform assignor here, whose result for two topics depends on their ids.
    yield beats("another for two", "c", 4, assignor="uniform")


def _full() -> Iterator[Step]:
    """Play a full group, whose size is limited to four by the settings."""
    beats = Beats(1, "c-full")
    for name in "abcd":
        yield beats.joins(f"{name} joins", name, instance=name)
    yield beats.joins("e joins", "e", WRONG)
    yield beats.joins("static e joins", "e", WRONG, instance="e")
    yield beats("a rests", "a", -2, instance="a")
    yield beats.joins("e joins while a rests", "e", WRONG)
    yield beats.joins("e joins for a", "e", instance="a")
    yield beats("b leaves", "b", -1, instance="b")
    yield beats.joins("f joins", "f")


def _slow() -> Steps:
    """Play a member that is removed because it does not revoke within its rebalance timeout."""
    beats = Beats(1, "c-slow")
    yield beats.joins("a joins", "a", rebalance_ms=SHORT_MS)
    yield beats("a has it", "a", 2, owned=[(FOUR, [0, 1, 2, 3])])
    yield beats.joins("b joins", "b")
    yield beats("a is told", "a", 2)
    yield ConsumerGroupIs(beats.group, 4)
    yield beats("a beats", "a", 2, WRONG)
    yield beats("b has it all", "b", 3)
    yield beats.described("without a")


def _changing() -> Steps:
    beats = Beats(1, "c-changing")
    yield GroupsSee(GROWING, 1)
    yield beats.joins("joins", "a", names=[GROWING, TWO], assignor="range")
    yield request_step("grows", VALID, grow(GROWING, 3), 3)
    yield Ready(GROWING, 3)
    yield GroupsSee(GROWING, 3)
    yield beats("has more", "a", 2)
    yield request_step("goes", VALID, delete(5, GROWING), 5)
    yield Ready(GROWING, 0)
    yield GroupsSee(GROWING, 0)
    yield beats("has less", "a", 3)
    yield beats("gave it up", "a", 3, owned=[(TWO, [0, 1])])
    yield beats.described("with less")
