"""The parts of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sections_coordinated
from aims import AT_LEAST_LEVEL, LOADED, Verdict
from cells import both, one, per_second, table, time
from compare import Pair, Results
from texts import BEHIND, INTRODUCTIONS, REASONS, TITLES
from work import Numbers

BEHIND_MIN = 0.97  # Closer is level: repetitions differ by as much.


def opening(results: Results) -> str:
    machine = results.machine
    short = (
        ""
        if results.mode == "full"
        else f"\nThis was a short run (`--{results.mode}`), so its numbers are approximate."
    )
    return f"""# Benchmarks

This page compares Odradek ({machine["Odradek"]}) to Apache Kafka {machine["Apache Kafka"]} and to a minimal program,
the lower bound. It is for users who want to estimate the performance of Odradek. All ran the same work on one machine
with {machine["cores"]} cores in one run ({machine["date"]}).{short}

Ratios are relative to Kafka. A ratio of 2 means twice the rate or, for CPU and latency, twice the time. The raw
numbers are in [benchmarks/results.json](benchmarks/results.json). `bench/report` generates this page from them. Do not
edit it."""


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    return "## Aims\n\n" + table(("Aim", "Measured", "Result"), [(row.aim, row.found, row.verdict) for row in verdicts])


def behind(results: Results) -> str:
    """Every case in which Kafka has the higher rate, the lower p99 or the lower processor time, and why."""
    groups = (*LOADED, *AT_LEAST_LEVEL)
    rows = [row for group in groups for pair in results.pairs(group) for row in _behind(pair)]
    if not rows:
        return ""
    return f"{BEHIND.strip()}\n\n" + table(("Case", "Rate", "p99", "CPU", "Reason"), rows)


def _behind(pair: Pair) -> Iterator[tuple[str, ...]]:
    p99, cpu = pair.p99 or 0.0, pair.cpu or 0.0
    losses = {"rate": pair.rate < BEHIND_MIN, "p99": p99 > 1 / BEHIND_MIN, "CPU": cpu > 1 / BEHIND_MIN}
    if any(losses.values()):
        ratios = [
            f"**{ratio:.2f}**" if loses else f"{ratio:.2f}" if ratio else ""
            for ratio, loses in zip((pair.rate, p99, cpu), losses.values(), strict=True)
        ]
        why = [REASONS[key] for key in REASONS if key[0] == pair.group and key[1] in pair.label and losses[key[2]]]
        yield f"{pair.group}: {pair.label}", *ratios, " ".join(why)


def body(group: str, results: Results, plots: Sequence[str]) -> str:
    parts = [f"## {TITLES[group]}", INTRODUCTIONS[group].strip("\n")]
    if plots:
        parts.append("\n".join(f"![{TITLES[group]}](benchmarks/{name})" for name in plots))
    if group == "start":
        parts += [_start(found) for _, found in results.of(group)]
    elif group in sections_coordinated.TABLES:
        parts.append(sections_coordinated.TABLES[group](results))
    else:
        parts.append(_rows(group, results))
    return "\n\n".join(parts)


def _start(found: dict[str, Numbers]) -> str:
    rows = (
        ("start to first answer", "ready_s", lambda value: f"{value:.2f} s"),
        ("memory, idle", "idle_rss_mb", lambda value: f"{value:.0f} MB"),
        ("cores used, idle", "idle_cores", lambda value: f"{value:.3f}"),
        ("first second: one at a time", "cold_one_at_a_time_per_s", per_second),
        ("its p99", "cold_one_at_a_time_p99", time),
        ("first second: 50 in flight", "cold_50_in_flight_per_s", per_second),
        ("first second: produce 1 KiB", "cold_produce_1k_per_s", per_second),
    )
    lines = [(label, *(form(numbers[name]) for numbers in found.values())) for label, name, form in rows]
    return table(("Measurement", *found), lines)


def _rows(group: str, results: Results) -> str:
    pairs = results.pairs(group)
    header = (
        "Case",
        "Odradek",
        "Kafka",
        "Lower bound",
        "Ratio",
        "CPU s per M records",
        "CPU ratio",
        "p50",
        "p99",
        "p99.9",
        "Resident MB",
    )
    if pairs:
        return table(header, [_pair(pair) for pair in pairs])
    lines = [
        (
            case["name"],
            target,
            per_second(numbers["records_per_s"]),
            f"{numbers['cpu_s_per_million']:.3g}",
            one(numbers),
        )
        for case, found in results.of(group)
        for target, numbers in found.items()
    ]
    return table(("Case", "Broker", "Records", "CPU s per M records", "p50 / p99 / p99.9"), lines)


def _pair(pair: Pair) -> tuple[str, ...]:
    ours, theirs, bound = pair.ours, pair.theirs, pair.bound
    cpu = f"{ours['cpu_s_per_million']:.3g} : {theirs['cpu_s_per_million']:.3g}"
    return (
        pair.label,
        per_second(ours["records_per_s"]),
        per_second(theirs["records_per_s"]),
        per_second(bound["records_per_s"]) if bound else "",
        f"**{pair.rate:.2f}**",
        cpu,
        f"**{pair.cpu:.2f}**" if pair.cpu else "",
        *(both(ours, theirs, name) for name in ("p50", "p99", "p99.9")),
        f"{ours['rss_mb']:.0f} : {theirs['rss_mb']:.0f}",
    )


def failures(results: Results) -> str:
    errors = results.errors()
    if not errors:
        return ""
    return "## Failures\n\n" + "\n".join(f"- {' '.join(error.split())[:300]}" for error in errors)


def machine(results: Results) -> str:
    return "## Machine and versions\n\n" + table(("Component", "Value"), results.machine.items())
