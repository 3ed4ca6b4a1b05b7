"""What groups, commits, sequence numbers and transactions were to cost at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from compare import DEFAULTS, SYNCED, Pair, Results, typical
from work import Numbers

SETTLED_MAX = 1.0  # Times Kafka's.
BESIDE_COMMITS_MAX = 1.1  # Times the latency without them.
IDEMPOTENT_MIN = 0.95  # Of the rate without sequence numbers.
TRANSACTIONS_MIN = 1.0  # Times Kafka's.
TRANSACTION_CPU_MAX = 1.0
PHASES = {"joined_ms": "all join", "one_left_ms": "one leaves", "many_left_ms": "50 leave"}


class Found(NamedTuple):
    """A ratio, and what it is of."""

    ratio: float
    label: str


class Aim(NamedTuple):
    text: str
    bound: float
    is_least: bool
    found: list[Found]

    @property
    def good(self) -> int:
        return sum(ratio >= self.bound if self.is_least else ratio <= self.bound for ratio, _ in self.found)

    @property
    def spread(self) -> str:
        worst = (min if self.is_least else max)(self.found)
        if len(self.found) == 1:
            return f"{worst.ratio:.2f}"
        mean = typical([ratio for ratio, _ in self.found])
        return f"mean {mean:.2f} of {len(self.found)} cases; worst {worst.ratio:.2f} ({worst.label})"


def aims(results: Results) -> Iterator[Aim]:
    settled = [one for pair in results.pairs("groups") for one in _settled(pair)]
    yield Aim("groups: 200 members get their assignment in at most {} times Kafka's time", SETTLED_MAX, False, settled)
    for name in ("p50", "p99"):
        for beside, description in (
            ("alone", "without commits"),
            ("elsewhere", "with the same commits to another broker"),
        ):
            text = f"commits: produce {name} with 1,000 commits/s at most {{}} times that {description}"
            yield Aim(text, BESIDE_COMMITS_MAX, False, list(_beside_commits(results, name, beside)))
    shares = [Found(share(numbers), case) for case, numbers in _ours(results, "idempotent")]
    yield Aim("idempotent: at least {} of the rate without sequence numbers", IDEMPOTENT_MIN, True, shares)
    pairs = results.pairs("transactions")
    for promise, description in (("", "with Kafka's durability"), (SYNCED, "both synced"), (DEFAULTS, DEFAULTS)):
        yield from _transactions([pair for pair in pairs if pair.promise == promise], description)


def _transactions(pairs: Sequence[Pair], description: str) -> Iterator[Aim]:
    rates = [Found(pair.rate, pair.name) for pair in pairs]
    yield Aim(f"transactions, {description}: at least {{}} times Kafka's rate", TRANSACTIONS_MIN, True, rates)
    cpu = [Found(pair.cpu, pair.name) for pair in pairs if pair.cpu]
    yield Aim(f"transactions, {description}: at most {{}} times Kafka's CPU", TRANSACTION_CPU_MAX, False, cpu)


def _settled(pair: Pair) -> Iterator[Found]:
    for name, text in PHASES.items():
        yield Found(pair.ours[name] / pair.theirs[name], f"{pair.name}, {text}")


def _beside_commits(results: Results, name: str, beside: str) -> Iterator[Found]:
    for case, numbers in _ours(results, "commits"):
        yield Found(numbers[name] / numbers[f"{beside}_{name}"], case)


def share(numbers: Numbers) -> float:
    """Of the rate without sequence numbers."""
    return numbers["records_per_s"] / numbers["plain_records_per_s"]


def _ours(results: Results, group: str) -> Iterator[tuple[str, Numbers]]:
    """Odradek's numbers, and the case's name with the target's."""
    for case, found in results.of(group):
        for target, numbers in found.items():
            if target.startswith("odradek"):
                yield f"{case['name']}, {target}", numbers
