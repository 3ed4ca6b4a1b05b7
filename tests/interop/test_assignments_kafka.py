"""Replica placement of new partitions: tests/golden/assignments.txt equals what Apache Kafka 3.9.1 computes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kafka_zookeeper import OLD_KAFKA, V3, old_jars

pytestmark = [
    *OLD_KAFKA,
    pytest.mark.own_peer("compares a recording with a running Apache Kafka"),
]

PROGRAM = Path(__file__).parent / "java" / "Assignments.java"
GOLDEN = Path(__file__).parents[1] / "golden" / "assignments.txt"
SECONDS_MAX = 120


def test_golden_assignments_equal_kafkas() -> None:
    command = ["java", "-cp", f"{old_jars(V3)}/*", str(PROGRAM)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
    assert found.stdout == GOLDEN.read_text()
