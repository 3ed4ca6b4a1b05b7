"""The parts of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aims import Verdict
from compare import Pair, Results
from show import rate
from work import Numbers

TITLES = {
    "start": "Start, memory, first seconds",
    "small": "One small record per request",
    "produce": "Produce",
    "consume": "Consume",
    "latency": "From producer to consumer",
    "partitions": "Many partitions",
    "librdkafka": "Through librdkafka",
}

INTRODUCTIONS = {
    "start": """
From the start of the process to the first answered ApiVersions and Metadata, on an empty directory (Kafka's was
formatted before). Memory is what is resident; idle is some seconds after the start, without any client. The first
seconds are those of a broker that has just been started: a JVM is then still interpreting, and tests meet brokers in
this state.""",
    "small": """
One record of 100 B in each request, on one connection unless it says otherwise. Apache Kafka reads the next request of
a connection only when the one before is answered, so requests in flight on one connection help it little, and more
connections help it more.""",
    "produce": """
Requests of one batch of about 1 MB before compression (librdkafka's limit; the last lines have the Java producer's
default of 16 KiB), five in flight on each connection. Half of each value is random. With six producers each has a
partition of its own. `synced` means: on disk before the answer. Odradek does so by default when acks=all and there is
no follower, and Kafka when told with flush.messages=1; without `synced` neither does.""",
    "consume": """
Batches of 64 KiB, at most 1 MiB for each partition and fetch (the consumer's default), one fetch in flight for each
connection. Hot is read from the page cache, again and again; cold is read once, after the segment files were written
out and dropped from the page cache (`posix_fadvise`, DONTNEED).""",
    "latency": """
One producer sends 1,000 records of 100 B a second, one by one, on a schedule that does not wait for answers; one
consumer long-polls. The time is from before the producer's `send` to after the consumer's `recv`, both on one
clock.""",
    "partitions": """
Batches of 10 records of 100 B to one partition after the other, 50 requests in flight on one connection. Each partition
was written once before.""",
    "librdkafka": """
confluent-kafka from Python with its default settings, acks=1, one partition. The client takes most of a core, so that
the rate says more about it than about the broker; the processor time is the broker's. One setting is not the default:
with fetch.queue.backoff.ms=0 a consumer whose queue is full fetches again as soon as there is room. By default it
rests for a second, the longer the faster the broker has filled the queue.""",
}

METHOD = """
## How it is measured

    (source scripts/venv)                # makes .venv
    .venv/bin/python bench/run.py        # about half an hour; --quick about 5 minutes
    bench/report

- The load comes from requests that are encoded once and sent as they are, by one process for each client; it counts
  answers by their size. The error code of every Produce and Fetch answer is looked at, and after each measurement
  ListOffsets must say that the log has exactly the records that were acknowledged.
- Each number is the median of three repetitions, taken in turns (Odradek, Kafka, lower bound, Odradek, ...), each on a
  new topic that is deleted afterwards. All data lies on one file system.
- Every broker is warmed up with several seconds of small and large requests after its start, and before each case.
- Only one broker is under load at a time; the others stay up. Stopping them would throw away what the JVM has compiled,
  and a KRaft node that is suspended loses its session; an idle Odradek takes no processor time, an idle Kafka the
  few percent of a core that the first table tells, which the others have to do without.
- CPU is the processor time of all threads of the broker's process from /proc, for a million records. The ratios of CPU
  are for the same records, not for the same time.
- A topic of 2,000 partitions takes Kafka long to make, so there all repetitions are on one topic; the first write to
  each partition, which costs Kafka some milliseconds, is not measured.
- Kafka runs as its `kafka-server-start.sh` has it (1 GB heap, G1 with its flags), one KRaft node, default settings but
  for how soon the files of deleted topics go.
- The lower bound is one thread in Python that writes whatever it receives to a file, acknowledges it with constant
  bytes, and answers fetches with sendfile. It checks nothing, keeps no index and no offsets.
- Clients and brokers share the machine, so a broker that uses more than its share of the cores also slows its clients.
"""


def opening(results: Results) -> str:
    machine = results.machine
    short = "" if results.mode == "full" else f"\nThis was a short run (`--{results.mode}`); its numbers are rough."
    return f"""# Benchmarks

Made by `bench/report` from one run of `bench/run.py`; do not edit.

Odradek ({machine["Odradek"]}), Apache Kafka {machine["Apache Kafka"]} and a bare lower bound did the same work on one
machine with {machine["cores"]} cores in one run ({machine["date"]}).{short}

Ratios are to Kafka: 2 is twice as fast, or, for CPU, twice the processor time for the same records. The raw numbers are
in [benchmarks/results.json](benchmarks/results.json)."""


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    return "## Aims\n\n" + table(("aim", "measured", ""), [(row.aim, row.found, row.verdict) for row in verdicts])


def body(group: str, results: Results, plots: Sequence[str]) -> str:
    parts = [f"## {TITLES[group]}", INTRODUCTIONS[group].strip("\n")]
    parts += [f"![{TITLES[group]}](benchmarks/{name})" for name in plots]
    if group == "start":
        parts += [_start(found) for _, found in results.of(group)]
    else:
        parts.append(_rows(group, results))
    return "\n\n".join(parts)


def _start(found: dict[str, Numbers]) -> str:
    rows = (
        ("start to first answer", "ready_s", lambda value: f"{value:.2f} s"),
        ("memory, idle", "idle_rss_mb", lambda value: f"{value:.0f} MB"),
        ("cores used, idle", "idle_cores", lambda value: f"{value:.3f}"),
        ("first second: one at a time", "cold_one_at_a_time_per_s", _per_second),
        ("its p99", "cold_one_at_a_time_p99", time),
        ("first second: 50 in flight", "cold_50_in_flight_per_s", _per_second),
        ("first second: produce 1 KiB", "cold_produce_1k_per_s", _per_second),
    )
    lines = [(label, *(form(numbers[name]) for numbers in found.values())) for label, name, form in rows]
    return table(("", *found), lines)


def _rows(group: str, results: Results) -> str:
    pairs = results.pairs(group)
    header = (
        "",
        "Odradek",
        "Kafka",
        "lower bound",
        "ratio",
        "CPU s per M records",
        "ratio",
        "p50",
        "p99",
        "p99.9",
        "MB resident",
    )
    if pairs:
        return table(header, [_pair(pair) for pair in pairs])
    lines = [
        (
            case["name"],
            target,
            _per_second(numbers["records_per_s"]),
            f"{numbers['cpu_s_per_million']:.3g}",
            _one(numbers),
        )
        for case, found in results.of(group)
        for target, numbers in found.items()
    ]
    return table(("", "", "records", "CPU s per M records", "p50 / p99 / p99.9"), lines)


def _pair(pair: Pair) -> tuple[str, ...]:
    ours, theirs, bound = pair.ours, pair.theirs, pair.bound
    cpu = f"{ours['cpu_s_per_million']:.3g} : {theirs['cpu_s_per_million']:.3g}"
    return (
        pair.label,
        _per_second(ours["records_per_s"]),
        _per_second(theirs["records_per_s"]),
        _per_second(bound["records_per_s"]) if bound else "",
        f"**{pair.rate:.2f}**",
        cpu,
        f"**{pair.cpu:.2f}**" if pair.cpu else "",
        *(_both(ours, theirs, name) for name in ("p50", "p99", "p99.9")),
        f"{ours['rss_mb']:.0f} : {theirs['rss_mb']:.0f}",
    )


def _both(ours: Numbers, theirs: Numbers, name: str) -> str:
    return f"{time(ours[name])} : {time(theirs[name])}" if name in ours and name in theirs else ""


def _one(numbers: Numbers) -> str:
    return " / ".join(time(numbers[name]) for name in ("p50", "p99", "p99.9") if name in numbers)


def _per_second(value: float) -> str:
    return f"{rate(value)}/s"


def time(microseconds: float) -> str:
    return f"{microseconds / 1000:.3g} ms" if microseconds >= 1000 else f"{microseconds:.0f} µs"


def failures(results: Results) -> str:
    errors = results.errors()
    if not errors:
        return ""
    return "## What failed\n\n" + "\n".join(f"- {' '.join(error.split())[:300]}" for error in errors)


def machine(results: Results) -> str:
    return "## Machine and versions\n\n" + table(("", ""), results.machine.items())


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
