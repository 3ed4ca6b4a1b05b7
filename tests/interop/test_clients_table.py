"""docs/CLIENTS.md tells of the clients that the tests run, and of no other."""

from __future__ import annotations

import re

import kafka_peer
import pytest
from clients.page import groups, rows, version_of
from clients.registry import (
    ADMINISTRATORS,
    CLIENTS,
    JAVA_NEW,
    JAVA_OLD,
    WAYS,
    WITHOUT_INSTANCES,
    WITHOUT_TRANSACTIONS,
    Opened,
    lacks,
    parameter,
)

TOOLS = "kafka-tools"
NOBODY = "127.0.0.1:1"
# Their versions are ours to choose; the others are whatever pip or Debian has.
PINNED = {TOOLS: kafka_peer.VERSION, f"java-{JAVA_NEW}": JAVA_NEW, f"java-{JAVA_OLD}": JAVA_OLD}
CHOSEN_HERE = {"franz-go", "sarama", "kafka-go", "kafkajs"}


def test_each_client_has_its_row() -> None:
    assert set(rows()) == {*CLIENTS, TOOLS}


def test_rows_tell_version_and_what_ran() -> None:
    for name, (version, ran, _) in rows().items():
        assert re.match(r"\d+\.\d+", version), name
        assert ran, name


def test_all_means_administration_too() -> None:
    assert {name for name, (_, ran, _) in rows().items() if ran.startswith("all")} <= ADMINISTRATORS.keys()


def test_how_they_are_members_and_whether_they_have_transactions() -> None:
    assert {name: told.split(", ") for name, (told, _, _) in groups().items()} == {
        name: list(ways) for name, ways in WAYS.items()
    }
    assert {name for name, (_, told, _) in groups().items() if told == "no"} == WITHOUT_INSTANCES
    assert {name for name, (_, _, told) in groups().items() if told == "no"} == WITHOUT_TRANSACTIONS


def test_versions_that_are_ours_to_choose() -> None:
    assert {name: rows()[name][0] for name in PINNED} == PINNED


@pytest.mark.parametrize("name", [parameter(name) for name in sorted(CHOSEN_HERE)])
def test_versions_of_lock_files(name: str) -> None:
    assert lacks(name) is None
    opened = Opened(NOBODY)
    try:
        assert version_of(name) == opened[name].version.removeprefix("v").split()[0]
    finally:
        opened.close()
