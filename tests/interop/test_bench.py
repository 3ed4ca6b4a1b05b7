"""The benchmark: it runs, checks its measurements, and builds its page. Speed is not tested here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
SECONDS_MAX = 900
TARGETS = "odradek,bound"
LATENCIES = {"p50", "p99", "p99.9"}
ENVIRONMENT = {**os.environ, "ODRADEK_ROOMS": "0"}  # Compilation would take minutes.
RECORDS = {
    "small",
    "produce",
    "validated",
    "consume",
    "latency",
    "partitions",
    "many",
    "sessions",
    "librdkafka",
    "idempotent",
    "transactions",
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=ENVIRONMENT)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run each quick case for a moment, against Odradek and the lower bound."""
    folder = tmp_path_factory.mktemp("bench")
    out = folder / "results.json"
    done = run(str(BENCH / "run.py"), "--smoke", "--targets", TARGETS, "--out", str(out), "--directory", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(folder.iterdir()) == [out], "a run leaves nothing but its results"
    return out


@pytest.fixture
def content(results: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(results.read_text())
    return loaded


@pytest.mark.nightly
def test_every_group_was_measured_without_errors(content: dict[str, Any]) -> None:
    groups = {case["group"] for case in content["cases"]}
    assert groups == RECORDS | {"start", "groups", "commits"}
    for case in content["cases"]:
        assert case["errors"] == {}, case["name"]
        measured = {target for target in case["targets"] if target.split("-")[0] in TARGETS.split(",")}
        assert set(case["results"]) == measured, case["name"]


def test_every_measurement_did_some_work(content: dict[str, Any]) -> None:
    for case, _target, numbers in measurements(content):
        if case["group"] == "start":
            assert numbers["ready_s"] > 0
            assert numbers["cold_one_at_a_time_per_s"] > 0
            continue
        assert numbers["rss_mb"] > 1
        if case["group"] in RECORDS:
            assert numbers["records_per_s"] > 0
            assert numbers["mb_per_s"] >= 0
            assert numbers["cpu_s"] >= 0
        if case["group"] in ("small", "latency", "commits", "transactions"):
            assert numbers.keys() >= LATENCIES
            assert 0 < numbers["p50"] <= numbers["p99"] <= numbers["p99.9"]


def test_every_group_contains_its_comparison_values(content: dict[str, Any]) -> None:
    for case, target, numbers in measurements(content):
        if case["group"] == "groups":
            assert min(numbers["joined_ms"], numbers["one_left_ms"], numbers["many_left_ms"]) > 0
            assert numbers["requests"] >= 2 * case["clients"]
        if case["group"] == "commits":
            assert ("elsewhere_p50" in numbers) == target.startswith("odradek")
            assert numbers["commits_per_s"] > 0
            assert 0 < numbers["alone_p50"] <= numbers["alone_p99"]
            assert 0 < numbers["commit_p50"] <= numbers["commit_p99"]
        if case["group"] == "idempotent":
            assert numbers["plain_records_per_s"] > 0


def measurements(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, dict[str, float]]]:
    for case in content["cases"]:
        for target, repetitions in case["results"].items():
            for numbers in repetitions:
                yield case, target, numbers


def test_results_name_the_machine_and_the_versions(content: dict[str, Any]) -> None:
    machine = content["machine"]
    assert machine["cores"] == str(os.cpu_count())
    for name in ("processor", "memory", "kernel", "file system", "Python", "uvloop", "Odradek", "librdkafka"):
        assert machine[name] not in ("", "unknown", "not installed"), name


def test_the_page_builds_without_kafka(results: Path, tmp_path: Path) -> None:
    done = run(str(BENCH / "report.py"), str(results), "--to", str(tmp_path))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "BENCHMARKS.md").read_text()
    assert "## Produce" in page
    assert "| odradek |" in page
    for title in ("Groups", "Produce during offset commits", "Idempotent producers", "Transactions"):
        assert f"## {title}\n" in page, title


def test_the_page_has_ratios_verdicts_and_plots(content: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib, of the extra `bench`")
    for case in content["cases"]:  # Only the form matters, so Odradek's numbers stand for Kafka's.
        case["results"]["kafka"] = case["results"].get("odradek-unsynced", case["results"].get("odradek"))
    (tmp_path / "results.json").write_text(json.dumps(content))
    done = run(str(BENCH / "report.py"), str(tmp_path / "results.json"), "--to", str(tmp_path))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "BENCHMARKS.md").read_text()
    assert "| produce: at least 1.3 times Kafka's rate | mean 1.00 of" in page
    assert "| not met |" in page
    assert "| groups: 200 members get their assignment in at most 1 times Kafka's time | mean 1.00 of" in page
    assert "| transactions, with Kafka's durability: at least 1 times Kafka's rate |" in page
    plots = re.findall(r"\]\((benchmarks/[\w-]+\.svg)\)", page)
    assert len(plots) >= 12
    for plot in plots:
        assert (tmp_path / plot).read_text().lstrip().startswith("<?xml"), plot


def test_a_failing_broker_does_not_look_fast(tmp_path: Path) -> None:
    """A topic that accepts no records returns errors quickly; these must not count."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import work
from pathlib import Path
from brokers import Odradek
from cases import Case

broker = Odradek(Path(sys.argv[2]))
broker.start()
budget = work.Budget(0.1, 0, 0, 1, 1_000_000, 0, 0)
refusing = work.Target("odradek", broker, {"max.message.bytes": "100"})
try:
    work.produce(refusing, Case("", "", "produce", value_bytes=1024), budget, 0)
except work.LoadFailed as failed:
    print(failed)
finally:
    broker.stop()
"""
    done = run("-c", code, str(BENCH), str(tmp_path / "broker"))
    assert "answered with error 10" in done.stdout, done.stdout + done.stderr  # MESSAGE_TOO_LARGE.


def test_a_commit_that_is_refused_does_not_count(tmp_path: Path) -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from brokers import Odradek
from load import LoadFailed
from load_commits import Plan
import work

broker = Odradek(Path(sys.argv[2]))
broker.start()
broker.control.wait_for_groups(["some"])
try:
    work.load(broker, [Plan(broker.port, "bench-nowhere", ["some"], 1, 0, 0.1).work()])
except LoadFailed as failed:
    print(failed)
finally:
    broker.stop()
"""
    done = run("-c", code, str(BENCH), str(tmp_path / "broker"))
    assert "answered with error 3" in done.stdout, done.stdout + done.stderr  # UNKNOWN_TOPIC_OR_PARTITION.


def test_prebuilt_sequence_numbers_equal_those_of_a_producer() -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import frames
from control import Producer
from odradek.record.record_batch import Batch
from sequences import Checksums, Sequenced, of_producer

batch, who, topic = frames.batch(100, 16_384), Producer(1 << 40, 3), "bench-000001"
checksums = Checksums(batch.data, who)
for sequence in (0, 1, 140, 65_536, 0x12345678, 0x7FFFFFFF):
    made = of_producer(batch.data, who, sequence)
    Batch.checked(memoryview(made))
    assert checksums.of(sequence) == int.from_bytes(made[17:21]), sequence

ring = Sequenced(topic, -1, batch, who, window=5)
wanted = [frames.produce(topic, 0, -1, bytes(of_producer(batch.data, who, n * batch.records))) for n in (7, 8)]
assert bytes(ring.slice(7, 2)) == b"".join(wanted)
wrapped = -(-(1 << 31) // batch.records)
first = wrapped * batch.records - (1 << 31)
assert bytes(ring.slice(wrapped, 1)) == frames.produce(topic, 0, -1, bytes(of_producer(batch.data, who, first)))
assert bytes(Sequenced(topic, -1, batch, None, 5).slice(9, 1)) == frames.produce(topic, 0, -1, batch.data)
print("good")
"""
    done = run("-c", code, str(BENCH))
    assert done.stdout == "good\n", done.stdout + done.stderr


def test_a_terminated_run_keeps_its_results(tmp_path: Path) -> None:
    out, folder = tmp_path / "results.json", tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, str(BENCH / "run.py"), "--smoke", "--targets", TARGETS, "--seconds", "0.3"]
    command += ["--only", "small", "--out", str(out), "--directory", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT)
    deadline = time.monotonic() + SECONDS_MAX
    while not out.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.terminate()
    output = process.communicate(timeout=SECONDS_MAX)[0]
    assert process.returncode == 1, output
    assert json.loads(out.read_text())["cases"][0]["results"]
    assert list(folder.iterdir()) == []


@pytest.mark.nightly
def test_plain_text_and_tls_do_the_same_work() -> None:
    arguments = ("--targets", "odradek", "--rounds", "1", "--seconds", "0.05", "--warm-up", "0")
    done = run(str(BENCH / "tls.py"), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, *rows = done.stdout.splitlines()
    assert len(rows) == 10
    for row in rows:
        plain, tls = (float(cell.replace(",", "")) for cell in row.split("|")[3:5])
        assert plain and tls
