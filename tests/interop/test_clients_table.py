"""docs/CLIENTS.md tells of the clients that the tests run, and of no other."""

from __future__ import annotations

import re
from pathlib import Path

import kafka_peer
import pytest
from clients.registry import ADMINISTRATORS, CLIENTS, JAVA_NEW, JAVA_OLD, Opened, lacks, parameter

PAGE = Path(__file__).resolve().parents[2] / "docs" / "CLIENTS.md"
TOOLS = "kafka-tools"
NOBODY = "127.0.0.1:1"
# Their versions are ours to choose; the others are whatever pip or Debian has.
PINNED = {TOOLS: kafka_peer.VERSION, f"java-{JAVA_NEW}": JAVA_NEW, f"java-{JAVA_OLD}": JAVA_OLD}
CHOSEN_HERE = {"franz-go", "sarama", "kafka-go", "kafkajs"}


def rows() -> dict[str, list[str]]:
    """Version, what ran and known gaps by client."""
    text = PAGE.read_text().partition("\n## Clients\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {name: rest for name, *rest in cells[2:]}


def test_each_client_has_its_row() -> None:
    assert set(rows()) == {*CLIENTS, TOOLS}


def test_rows_tell_version_and_what_ran() -> None:
    for name, (version, ran, _) in rows().items():
        assert re.match(r"\d+\.\d+", version), name
        assert ran, name


def test_all_means_administration_too() -> None:
    assert {name for name, (_, ran, _) in rows().items() if ran.startswith("all")} <= ADMINISTRATORS.keys()


def test_versions_that_are_ours_to_choose() -> None:
    assert {name: rows()[name][0] for name in PINNED} == PINNED


@pytest.mark.parametrize("name", [parameter(name) for name in sorted(CHOSEN_HERE)])
def test_versions_of_lock_files(name: str) -> None:
    assert lacks(name) is None
    opened = Opened(NOBODY)
    try:
        assert rows()[name][0].split()[0] == opened[name].version.removeprefix("v").split()[0]
    finally:
        opened.close()
