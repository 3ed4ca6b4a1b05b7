"""Plots of a file of results, as SVG with text as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import aims
import matplotlib as mpl
from compare import Pair, Results
from show import rate
from work import Numbers

mpl.use("svg")
mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "odradek",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
    }
)

from matplotlib import pyplot as plt  # noqa: E402  # After the backend is chosen.
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator  # noqa: E402

OURS, THEIRS, BOUND, WORSE = "#2b6cb0", "#6b7280", "#b7791f", "#c05621"
ROW_INCHES = 0.3
RATIOS = {
    "small": "One small record per request",
    "produce": "Produce",
    "consume": "Consume",
    "partitions": "Small batches over many partitions",
    "librdkafka": "The same work through librdkafka",
    "idempotent": "Idempotent producers",
    "transactions": "Transactions of 100 records",
}
LATENCIES = {
    "small": "One small record per request: latency",
    "latency": "From producer to consumer: latency",
    "commits": "Acknowledgements: alone, beside 1,000 commits a second elsewhere, and here: latency",
}
LATENCY_NAMES = ("p50", "p99", "p99.9")
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def ratios(pairs: Sequence[Pair], title: str, path: Path) -> None:
    """Left how fast, right the broker's processor time for each record, both as a multiple of Kafka's."""
    height = 1.2 + ROW_INCHES * len(pairs)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, height), sharey=True, width_ratios=(3, 2))
    _bars(left, [(row, pair.rate) for row, pair in enumerate(pairs)], lambda ratio: ratio >= 1)
    aimed = [(row, aim) for row, pair in enumerate(pairs) if (aim := aims.rate_aim(pair))]
    left.plot([aim for _, aim in aimed], [row for row, _ in aimed], "|", color="black", markersize=13, label="aim")
    bounds = [
        (row, pair.bound["records_per_s"] / pair.theirs["records_per_s"])
        for row, pair in enumerate(pairs)
        if pair.bound
    ]
    places = [ratio for _, ratio in bounds], [row for row, _ in bounds]
    left.plot(*places, "D", color=BOUND, markersize=4, label="lower bound", clip_on=False)
    values = [*(pair.rate for pair in pairs), *(aim for _, aim in aimed), *places[0]]
    _axis(left, "records per second, times Kafka's (log)", values)
    for row, pair in enumerate(pairs):
        _beside(
            left,
            row,
            f"{pair.rate:.2f}×  {rate(pair.ours['records_per_s'])}/s : {rate(pair.theirs['records_per_s'])}/s",
        )
    left.set_yticks(range(len(pairs)), [pair.label for pair in pairs])
    left.set_ylim(len(pairs) - 0.4, -0.6)
    _processor(right, pairs)
    _finish(figure, left, title, path)


def _processor(axes: Axes, pairs: Sequence[Pair]) -> None:
    found = [(row, pair.cpu) for row, pair in enumerate(pairs) if pair.cpu]
    _bars(axes, found, lambda ratio: ratio <= 1)
    aim = aims.cpu_aim(pairs[0].group)
    axes.axvline(aim, color="black", linewidth=0.9, linestyle=":")
    for row, ratio in found:
        _beside(axes, row, f"{ratio:.2f}×")
    _axis(axes, "broker CPU per record, times Kafka's", [*(ratio for _, ratio in found), aim])
    axes.tick_params(left=False)


def _bars(axes: Axes, ratios_by_row: Sequence[tuple[int, float]], is_good: Callable[[float], bool]) -> None:
    """From Kafka's 1 to the ratio."""
    rows = [row for row, _ in ratios_by_row]
    colours = [OURS if is_good(ratio) else WORSE for _, ratio in ratios_by_row]
    axes.barh(rows, [ratio - 1 for _, ratio in ratios_by_row], left=1, color=colours, height=0.62)
    axes.axvline(1, color=THEIRS, linewidth=1.2)


def _beside(axes: Axes, at: float, text: str) -> None:
    axes.text(1.02, at, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8)


def _axis(axes: Axes, label: str, values: Sequence[float]) -> None:
    low, high = min([*values, 1.0]) / 1.15, max([*values, 1.0]) * 1.15
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks([tick for tick in TICKS if low <= tick <= high])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", color="#e5e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel(label)


def _finish(figure: plt.Figure, axes: Axes, title: str, path: Path) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="upper right", ncols=len(handles), frameon=False, fontsize=8)
    figure.tight_layout(rect=(0.01, 0, 1, 1), w_pad=3)
    figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(figure)


def latencies(rows: Sequence[tuple[str, dict[str, Numbers]]], title: str, path: Path) -> None:
    """p50, p99 and p99.9 of each target, a line from the first to the last."""
    lines = [(name, target, numbers) for name, found in rows for target, numbers in found.items() if "p99.9" in numbers]
    figure, axes = plt.subplots(figsize=(11, 1.3 + 0.24 * len(lines) + 0.1 * len(rows)))
    ticks, labels, at, before = [], [], 0.0, ""
    for name, target, numbers in lines:
        at += 1.0 if name == before else 1.6
        _latency_line(axes, at, target, numbers)
        ticks.append(at)
        labels.append(f"{name}:  {target}" if name != before else target)
        before = name
    axes.set_yticks(ticks, labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(_time))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color="#e5e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel("p50 (dot), p99 (bar), p99.9 (cross); log")
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.tight_layout(rect=(0.01, 0, 1, 1))
    figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(figure)


def _latency_line(axes: Axes, at: float, target: str, numbers: Numbers) -> None:
    colour = BOUND if target == "bound" else OURS if target.startswith("odradek") else THEIRS
    values = [numbers[name] for name in LATENCY_NAMES]
    axes.plot(values, [at] * 3, "-", color=colour, linewidth=1.5)
    for value, marker in zip(values, ("o", "|", "x"), strict=True):
        axes.plot([value], [at], marker, color=colour, markersize=6, markeredgewidth=1.8)
    text = " / ".join(_time(value) for value in values)
    _beside(axes, at, text)


def _time(microseconds: float, _position: object = None) -> str:
    return f"{microseconds / 1000:.3g} ms" if microseconds >= 1000 else f"{microseconds:.3g} µs"


START = {
    "ready_s": "start to first answer, s",
    "idle_rss_mb": "memory idle, MB",
    "cold_one_at_a_time_per_s": "first second:\none at a time, requests/s",
    "cold_50_in_flight_per_s": "first second:\n50 in flight, requests/s",
}
SETTLED = {
    "joined_ms": "all join, ms",
    "one_left_ms": "one leaves, ms",
    "many_left_ms": "50 leave, ms",
    "cpu_s": "broker CPU of all that, s",
}


def small_bars(found: dict[str, Numbers], shown: dict[str, str], path: Path, title: str = "") -> None:
    """Side by side: each has its own unit."""
    targets = [(target, OURS if target == "odradek" else THEIRS) for target in ("odradek", "kafka") if target in found]
    figure, axes = plt.subplots(1, len(shown), figsize=(11, 2.1))
    for plot, (name, label) in zip(axes, shown.items(), strict=True):
        values = [found[target][name] for target, _ in targets]
        bars = plot.barh([target for target, _ in targets], values, color=[colour for _, colour in targets], height=0.6)
        plot.bar_label(bars, labels=[_short(value) for value in values], padding=3, fontsize=8)
        plot.set_title(label, fontsize=9)
        plot.margins(x=0.4)
        plot.invert_yaxis()
        plot.set_xticks([])
        plot.spines["bottom"].set_visible(False)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(figure)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def draw(results: Results, folder: Path) -> dict[str, list[str]]:
    """Every plot that the results are enough for; the names of the files by group."""
    drawn: dict[str, list[str]] = {}

    def path(group: str, kind: str = "") -> Path:
        name = f"{group}{kind}.svg"
        drawn.setdefault(group, []).append(name)
        return folder / name

    for _, found in results.of("start"):
        small_bars(found, START, path("start"))
    for number, (case, found) in enumerate(results.of("groups")):
        small_bars(found, SETTLED, path("groups", f"-{number}"), case["name"])
    for group, title in RATIOS.items():
        for is_synced, kind in ((False, ""), (True, "-synced")):
            if pairs := [pair for pair in results.pairs(group) if pair.is_synced == is_synced]:
                promise = ", on disk before the answer" if is_synced else ""
                ratios(pairs, f"{title}{promise}: Odradek : Kafka", path(group, kind))
    for group, title in LATENCIES.items():
        if rows := [(case["name"], _with_others(found)) for case, found in results.of(group)]:
            latencies(rows, title, path(group, "-latency"))
    return drawn


def _with_others(found: dict[str, Numbers]) -> dict[str, Numbers]:
    """What was measured without commits, or with commits to another broker, has a line of its own."""
    rows: dict[str, Numbers] = {}
    for target, numbers in found.items():
        for other in ("alone", "elsewhere"):
            beside = {name: numbers[f"{other}_{name}"] for name in LATENCY_NAMES if f"{other}_{name}" in numbers}
            if beside:
                rows[f"{target}, {other}"] = beside
        rows[target] = numbers
    return rows
