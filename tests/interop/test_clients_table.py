"""The table in docs/CLIENTS.md: it lists the clients that the tests run, and no others."""

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
NO_BROKER = "127.0.0.1:1"
# Their versions are chosen here; the others come from pip or Debian.
PINNED = {TOOLS: kafka_peer.VERSION, f"java-{JAVA_NEW}": JAVA_NEW, f"java-{JAVA_OLD}": JAVA_OLD}
CHOSEN_HERE = {"franz-go", "sarama", "kafka-go", "kafkajs"}


def test_each_client_has_its_row() -> None:
    assert set(rows()) == {*CLIENTS, TOOLS}


def test_rows_name_the_version_and_the_tests() -> None:
    for name, (version, ran, _) in rows().items():
        assert re.match(r"\d+\.\d+", version), name
        assert ran, name


def test_rows_with_all_tests_include_administration() -> None:
    assert {name for name, (_, ran, _) in rows().items() if ran.startswith("all")} <= ADMINISTRATORS.keys()


def test_rows_name_group_protocols_and_transactions() -> None:
    assert {name: protocols.split(", ") for name, (protocols, _, _) in groups().items()} == {
        name: list(ways) for name, ways in WAYS.items()
    }
    assert {name for name, (_, protocols, _) in groups().items() if protocols == "no"} == WITHOUT_INSTANCES
    assert {name for name, (_, _, protocols) in groups().items() if protocols == "no"} == WITHOUT_TRANSACTIONS


def test_pinned_versions_equal_the_table() -> None:
    assert {name: rows()[name][0] for name in PINNED} == PINNED


@pytest.mark.parametrize("name", [parameter(name) for name in sorted(CHOSEN_HERE)])
def test_installed_versions_equal_the_lock_files(name: str) -> None:
    assert lacks(name) is None
    opened = Opened(NO_BROKER)
    try:
        assert version_of(name) == opened[name].version.removeprefix("v").split()[0]
    finally:
        opened.close()
