"""Results on the terminal, as they come."""

from __future__ import annotations

from collections.abc import Callable

from cases import Case
from work import Numbers

SELDOM_NAMED = ("p50", "p99", "p99.9")


def case(case: Case, found: dict[str, Numbers], errors: dict[str, str]) -> None:
    print(f"\n{case.group}: {case.name}")
    reference = found.get("kafka")
    for target in case.targets:
        if target in errors:
            print(f"  {target:17} FAILED: {errors[target].strip().splitlines()[-1]}")
        elif target in found:
            line = LINES.get(case.group, _line)
            print(f"  {target:17} {line(found[target], reference)}", flush=True)


def _line(numbers: Numbers, reference: Numbers | None) -> str:
    parts = [f"{rate(numbers['records_per_s']):>7} rec/s {numbers['mb_per_s']:7.1f} MB/s"]
    if reference:
        parts.append(f"{numbers['records_per_s'] / reference['records_per_s']:5.2f} x Kafka")
    parts.append(f"cpu {numbers['cpu_s_per_million']:8.3f} s/M")
    if reference and reference["cpu_s_per_million"]:
        parts.append(f"({numbers['cpu_s_per_million'] / reference['cpu_s_per_million']:5.2f} x)")
    parts.append(f"cores {numbers['broker_cores']:4.2f} client {numbers['client_cores']:4.2f}")
    parts += [f"{name} {numbers[name]:.0f} µs" for name in SELDOM_NAMED if name in numbers]
    parts.append(f"rss {numbers['rss_mb']:.0f} MB")
    return "  ".join(parts)


def _groups(numbers: Numbers, reference: Numbers | None) -> str:
    parts = []
    for name, text in (("joined_ms", "joined"), ("one_left_ms", "one left"), ("many_left_ms", "many left")):
        times = f" ({numbers[name] / reference[name]:5.2f} x)" if reference else ""
        parts.append(f"{text} {numbers[name]:6.1f} ms{times}")
    parts.append(
        f"cpu {numbers['cpu_s']:.3f} s  client {numbers['client_cpu_s']:.3f} s  rss {numbers['rss_mb']:.0f} MB"
    )
    return "  ".join(parts)


def _commits(numbers: Numbers, _reference: Numbers | None) -> str:
    parts = []
    for name in ("p50", "p99"):
        elsewhere = f", elsewhere {numbers[f'elsewhere_{name}']:.0f}" if f"elsewhere_{name}" in numbers else ""
        alone = numbers[f"alone_{name}"]
        parts.append(f"{name} {numbers[name]:.0f} µs, alone {alone:.0f}{elsewhere} ({numbers[name] / alone:.2f} x)")
    parts.append(f"{numbers['commits_per_s']:.0f} commits/s p50 {numbers['commit_p50']:.0f} µs")
    parts.append(f"cores {numbers['cores']:.2f}, alone {numbers['alone_cores']:.2f}  rss {numbers['rss_mb']:.0f} MB")
    return "  ".join(parts)


def _idempotent(numbers: Numbers, reference: Numbers | None) -> str:
    share = numbers["records_per_s"] / numbers["plain_records_per_s"]
    return f"{share:.2f} x without  {_line(numbers, reference)}"


def _transactions(numbers: Numbers, reference: Numbers | None) -> str:
    return f"{numbers['requests_per_s']:5.0f} txn/s  {_line(numbers, reference)}"


LINES: dict[str, Callable[[Numbers, Numbers | None], str]] = {
    "groups": _groups,
    "commits": _commits,
    "idempotent": _idempotent,
    "transactions": _transactions,
}


def start(case: Case, found: dict[str, Numbers]) -> None:
    print(f"\n{case.group}: {case.name}")
    for target, numbers in found.items():
        print(f"  {target:17} " + "  ".join(f"{name} {number:.4g}" for name, number in numbers.items()), flush=True)


def rate(per_second: float) -> str:
    """With about three digits."""
    for unit, name in ((1e6, " M"), (1e3, " k"), (1, "")):
        if per_second >= unit:
            value = per_second / unit
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}{name}"
    return f"{per_second:.2f}"
