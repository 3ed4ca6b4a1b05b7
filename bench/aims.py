"""What was to be reached, and whether it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import aims_coordinated
from compare import Pair, Results, typical

PRODUCE_MIN = 1.3
CONSUME_MIN = 1.0
PIPELINED_MIN = 4.0
ONE_AT_A_TIME_MIN = 1.2
CPU_MAX = 0.5
P99_MAX = 1.0
AT_LEAST_LEVEL = {"many": "many connections", "sessions": "several partitions"}  # With Kafka, in rate and in CPU.
LEVEL = 1.0
LOADED_MB_MAX = 150
IDLE_MB_MAX = 80
START_SECONDS_MAX = 0.5
RATE_AIMS = {
    "produce": PRODUCE_MIN,
    "consume": CONSUME_MIN,
    "transactions": aims_coordinated.TRANSACTIONS_MIN,
    **dict.fromkeys(AT_LEAST_LEVEL, LEVEL),
}
COORDINATED = ("groups", "commits", "idempotent", "transactions")
LOADED = ("small", "produce", "consume", "latency", "partitions")


def rate_aim(pair: Pair) -> float | None:
    """How many times Kafka's rate this case was to reach; the aims say nothing of synced answers."""
    if pair.is_synced:
        return None
    if pair.group == "small":
        return PIPELINED_MIN if pair.case["window"] > 1 else ONE_AT_A_TIME_MIN
    return RATE_AIMS.get(pair.group)


def cpu_aim(group: str) -> float:
    """How much of Kafka's processor time this was to take at most."""
    if group in AT_LEAST_LEVEL:
        return LEVEL
    return aims_coordinated.TRANSACTION_CPU_MAX if group == "transactions" else CPU_MAX


class Verdict(NamedTuple):
    aim: str
    found: str
    verdict: str


def verdicts(results: Results) -> list[Verdict]:
    return [*_rates(results), *_shared(results), *_coordinated(results), *_alone(results)]


def _rates(results: Results) -> Iterator[Verdict]:
    produced = [pair for pair in results.pairs("produce") if not pair.is_synced]
    yield from _at_least("produce", PRODUCE_MIN, produced)
    yield from _at_least("consume", CONSUME_MIN, results.pairs("consume"))
    small = [pair for pair in results.pairs("small") if not pair.is_synced]
    yield from _at_least("small, 50 in flight", PIPELINED_MIN, [pair for pair in small if pair.case["window"] > 1])
    yield from _at_least(
        "small, one at a time", ONE_AT_A_TIME_MIN, [pair for pair in small if pair.case["window"] == 1]
    )


def _shared(results: Results) -> Iterator[Verdict]:
    pairs = [pair for group in LOADED for pair in results.pairs(group) if not pair.is_synced]
    yield from _at_most("broker CPU per record", CPU_MAX, pairs, lambda pair: pair.cpu)
    for group, description in AT_LEAST_LEVEL.items():
        of_group = results.pairs(group)
        yield from _at_least(description, LEVEL, of_group)
        yield from _at_most(f"{description}, broker CPU", LEVEL, of_group, lambda pair: pair.cpu)
        pairs += of_group
    yield from _at_most("p99", P99_MAX, pairs, lambda pair: pair.p99)


def _coordinated(results: Results) -> Iterator[Verdict]:
    for aim in aims_coordinated.aims(results):
        if aim.found:
            yield Verdict(aim.text.format(f"{aim.bound:g}"), aim.spread, _format_result(aim.good, len(aim.found)))


def _alone(results: Results) -> Iterator[Verdict]:
    for _, found in results.of("start"):
        if ours := found.get("odradek"):
            yield _below("start to first answer", START_SECONDS_MAX, ours["ready_s"], "s")
            yield _below("memory, idle", IDLE_MB_MAX, ours["idle_rss_mb"], "MB")
    loaded = [
        found["odradek"]["rss_mb"]
        for group in (*LOADED, *AT_LEAST_LEVEL, *COORDINATED)
        for _, found in results.of(group)
        if "rss_mb" in found.get("odradek", {})
    ]
    if loaded:
        yield _below("memory, loaded", LOADED_MB_MAX, max(loaded), "MB")


def _at_least(what: str, aim: float, pairs: list[Pair]) -> Iterator[Verdict]:
    ratios = [(pair.rate, pair) for pair in pairs]
    if ratios:
        good = sum(ratio >= aim for ratio, _ in ratios)
        worst, pair = min(ratios, key=lambda found: found[0])
        yield Verdict(
            f"{what}: at least {aim:g} times Kafka's rate",
            _spread(ratios, worst, pair),
            _format_result(good, len(ratios)),
        )


def _at_most(what: str, aim: float, pairs: list[Pair], ratio_of: Callable[[Pair], float | None]) -> Iterator[Verdict]:
    ratios = [(ratio, pair) for pair in pairs if (ratio := ratio_of(pair)) is not None]
    if ratios:
        good = sum(ratio <= aim for ratio, _ in ratios)
        worst, pair = max(ratios, key=lambda found: found[0])
        yield Verdict(
            f"{what}: at most {aim:g} times Kafka's", _spread(ratios, worst, pair), _format_result(good, len(ratios))
        )


def _spread(ratios: list[tuple[float, Pair]], worst: float, pair: Pair) -> str:
    if len(ratios) == 1:
        return f"{worst:.2f}"
    mean = typical([ratio for ratio, _ in ratios])
    return f"mean {mean:.2f} of {len(ratios)} cases; worst {worst:.2f} ({pair.group}: {pair.label})"


def _format_result(good: int, count: int) -> str:
    if good == count:
        return "met"
    return f"met in {good} of {count}" if good else "not met"


def _below(what: str, aim: float, found: float, unit: str) -> Verdict:
    return Verdict(f"{what}: at most {aim:g} {unit}", f"{found:.3g} {unit}", "met" if found <= aim else "not met")
