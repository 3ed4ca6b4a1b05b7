"""The benchmark runs, checks what it measures, and its page builds.  How fast anything is, is not asked here."""

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


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a moment of each quick case, against Odradek and the lower bound."""
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


def test_every_group_was_measured_without_errors(content: dict[str, Any]) -> None:
    groups = {case["group"] for case in content["cases"]}
    assert groups == {"start", "small", "produce", "consume", "latency", "partitions", "librdkafka"}
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
        assert numbers["records_per_s"] > 0
        assert numbers["mb_per_s"] >= 0
        assert numbers["cpu_s"] >= 0
        assert numbers["rss_mb"] > 1
        if case["group"] in ("small", "latency"):
            assert numbers.keys() >= LATENCIES
            assert 0 < numbers["p50"] <= numbers["p99"] <= numbers["p99.9"]


def measurements(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, dict[str, float]]]:
    for case in content["cases"]:
        for target, repetitions in case["results"].items():
            for numbers in repetitions:
                yield case, target, numbers


def test_the_machine_and_the_versions_are_told(content: dict[str, Any]) -> None:
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


def test_the_page_has_ratios_verdicts_and_plots(content: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib, of the extra `bench`")
    for case in content["cases"]:  # Nothing but the form is looked at, so Odradek's numbers do for Kafka's.
        case["results"]["kafka"] = case["results"].get("odradek-unsynced", case["results"].get("odradek"))
    (tmp_path / "results.json").write_text(json.dumps(content))
    done = run(str(BENCH / "report.py"), str(tmp_path / "results.json"), "--to", str(tmp_path))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "BENCHMARKS.md").read_text()
    assert "| produce: at least 1.3 times Kafka | 1.00 in the mean" in page
    assert "| not met |" in page
    plots = re.findall(r"\]\((benchmarks/[\w-]+\.svg)\)", page)
    assert len(plots) >= 7
    for plot in plots:
        assert (tmp_path / plot).read_text().lstrip().startswith("<?xml"), plot


def test_a_failing_broker_does_not_look_fast(tmp_path: Path) -> None:
    """Records of a topic that takes none are answered quickly, with an error: that must not count."""
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


def test_a_run_that_is_terminated_leaves_what_it_has(tmp_path: Path) -> None:
    out, folder = tmp_path / "results.json", tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, str(BENCH / "run.py"), "--smoke", "--targets", TARGETS, "--seconds", "0.3"]
    command += ["--only", "small", "--out", str(out), "--directory", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + SECONDS_MAX
    while not out.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.terminate()
    output = process.communicate(timeout=SECONDS_MAX)[0]
    assert process.returncode == 1, output
    assert json.loads(out.read_text())["cases"][0]["results"]
    assert list(folder.iterdir()) == []
