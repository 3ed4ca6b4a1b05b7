"""The tables of groups, commits, sequence numbers and transactions: what matters there has its own names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from aims_coordinated import PHASES, share
from cells import both, per_second, table, time
from compare import Pair, Results
from load_transactions import RECORDS
from work import Numbers


def _groups(results: Results) -> str:
    header = ("Case", "Event", "Odradek", "Kafka", "Ratio", "CPU", "CPU ratio", "Resident MB")
    return _of_pairs("groups", results, header, _group) or _plain("groups", results, _group_alone)


def _group(pair: Pair) -> Iterator[Sequence[str]]:
    ours, theirs = pair.ours, pair.theirs
    ratio = f"**{ours['cpu_s'] / theirs['cpu_s']:.2f}**" if theirs["cpu_s"] else ""
    cpu = f"{ours['cpu_s']:.2g} s : {theirs['cpu_s']:.2g} s", ratio
    rest = (*cpu, f"{ours['rss_mb']:.0f} : {theirs['rss_mb']:.0f}")
    for number, (name, text) in enumerate(PHASES.items()):
        times = _ms(ours[name]), _ms(theirs[name]), f"**{ours[name] / theirs[name]:.2f}**"
        yield ("" if number else pair.label, text, *times, *(("", "", "") if number else rest))


def _group_alone(numbers: Numbers) -> Iterator[tuple[str, str]]:
    for name, text in PHASES.items():
        yield text, _ms(numbers[name])


def _ms(milliseconds: float) -> str:
    return time(milliseconds * 1000)


def _commits(results: Results) -> str:
    """With and without beside each other: a line for each target, not for each pair."""
    times = [
        column for name in ("p50", "p99") for column in (f"{name} alone", f"{name} elsewhere", f"{name} here", "Ratio")
    ]
    header = ("Case", "Broker", *times, "Commits", "Commit p50", "Cores alone → here")
    lines = [
        (case["name"], target, *_commit(numbers))
        for case, found in results.of("commits")
        for target, numbers in found.items()
    ]
    return table(header, lines)


def _commit(numbers: Numbers) -> Iterator[str]:
    for name in ("p50", "p99"):
        alone = numbers[f"alone_{name}"]
        elsewhere = numbers.get(f"elsewhere_{name}")
        yield time(alone)
        yield "" if elsewhere is None else time(elsewhere)
        yield from (time(numbers[name]), f"**{numbers[name] / alone:.2f}**")
    yield per_second(numbers["commits_per_s"])
    yield time(numbers["commit_p50"])
    yield f"{numbers['alone_cores']:.2f} → {numbers['cores']:.2f}"


def _idempotent(results: Results) -> str:
    sides = (
        *("Odradek", "Odradek without", "Ratio", "CPU ratio"),
        *("Kafka", "Kafka without", "Ratio", "CPU ratio"),
    )
    header = ("Case", *sides, "Odradek : Kafka", "CPU s per M records")
    return _of_pairs("idempotent", results, header, _idempotent_pair) or _plain("idempotent", results, _rate_alone)


def _idempotent_pair(pair: Pair) -> Iterator[Sequence[str]]:
    rates = []
    for numbers in (pair.ours, pair.theirs):
        rates += [per_second(numbers["records_per_s"]), per_second(numbers["plain_records_per_s"])]
        rates += [f"**{share(numbers):.2f}**", _cpu_beside_plain(numbers)]
    yield pair.label, *rates, f"**{pair.rate:.2f}**", _cpu(pair)


def _cpu_beside_plain(numbers: Numbers) -> str:
    plain = numbers["plain_cpu_s_per_million"]
    return f"{numbers['cpu_s_per_million'] / plain:.2f}" if plain else ""


def _rate_alone(numbers: Numbers) -> Iterator[tuple[str, str]]:
    yield "records", per_second(numbers["records_per_s"])
    yield "without", per_second(numbers["plain_records_per_s"])


def _transactions(results: Results) -> str:
    header = ("Case", "Odradek", "Kafka", "Ratio", "CPU per transaction", "CPU ratio", "p50", "p99", "Resident MB")
    pairs = _of_pairs("transactions", results, header, _transactions_pair)
    return pairs or _plain("transactions", results, _transactions_alone)


def _transactions_pair(pair: Pair) -> Iterator[Sequence[str]]:
    ours, theirs = pair.ours, pair.theirs
    yield (
        pair.label,
        per_second(ours["requests_per_s"]),
        per_second(theirs["requests_per_s"]),
        f"**{pair.rate:.2f}**",
        f"{_cpu_for_one(ours)} : {_cpu_for_one(theirs)}",
        f"**{pair.cpu:.2f}**" if pair.cpu else "",
        *(both(ours, theirs, name) for name in ("p50", "p99")),
        f"{ours['rss_mb']:.0f} : {theirs['rss_mb']:.0f}",
    )


def _cpu_for_one(numbers: Numbers) -> str:
    """Seconds for a million records are microseconds for one."""
    return time(numbers["cpu_s_per_million"] * RECORDS)


def _transactions_alone(numbers: Numbers) -> Iterator[tuple[str, str]]:
    yield "transactions", per_second(numbers["requests_per_s"])
    yield "p99", time(numbers["p99"])


def _cpu(pair: Pair) -> str:
    return f"{pair.ours['cpu_s_per_million']:.3g} : {pair.theirs['cpu_s_per_million']:.3g}"


def _of_pairs(
    group: str, results: Results, header: Sequence[str], rows: Callable[[Pair], Iterator[Sequence[str]]]
) -> str:
    lines = [row for pair in results.pairs(group) for row in rows(pair)]
    return table(header, lines) if lines else ""


def _plain(group: str, results: Results, cells: Callable[[Numbers], Iterator[tuple[str, str]]]) -> str:
    """Without Kafka beside it."""
    lines = [
        (case["name"], target, text, value)
        for case, found in results.of(group)
        for target, numbers in found.items()
        for text, value in cells(numbers)
    ]
    return table(("Case", "Broker", "Measurement", "Value"), lines)


TABLES: dict[str, Callable[[Results], str]] = {
    "groups": _groups,
    "commits": _commits,
    "idempotent": _idempotent,
    "transactions": _transactions,
}
