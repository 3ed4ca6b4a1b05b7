"""API versions that the clients use with Odradek, compared with the table in docs/CLIENTS.md.

To change the table, run this with the new client and copy the versions from the failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from clients import page
from clients.client import BEGINNING, Administrator, Client, Transactional
from clients.members import Joining, Way
from clients.records import RECORDS
from clients.registry import (
    ADMINISTRATORS,
    CLIENTS,
    NEVER_IDEMPOTENT,
    WAYS,
    WITHOUT_TRANSACTIONS,
    Opened,
    parameter,
)
from clients.used_versions import watched

SECONDS_MAX = 30
PAUSE_SECONDS = 0.1
TOPIC = "topic"
HEARTBEATS = {"Heartbeat", "ConsumerGroupHeartbeat"}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [parameter(name) for name in CLIENTS])
def test_clients_use_the_documented_versions(tmp_path: Path, name: str) -> None:
    with watched(tmp_path) as seen, closing(Opened(seen.address)) as clients:
        if clients[name].version.removeprefix("v").split()[0] != page.version_of(name):
            pytest.skip(f"the page tells of {page.version_of(name)}")
        documented = page.api_versions(name)
        _write_and_read(clients[name], None if name in NEVER_IDEMPOTENT else True)
        _join(
            clients[name],
            {WAYS[name][0], WAYS[name][-1]},
            lambda: documented.keys() & HEARTBEATS <= seen.used_versions().keys(),
        )
        if name not in WITHOUT_TRANSACTIONS:
            _transact(clients.transactional(name))
        if name in ADMINISTRATORS:
            _administer(clients.administrator(name))
        _wait(lambda: seen.used_versions() == documented)
        assert seen.used_versions() == documented


def _write_and_read(client: Client, idempotent: bool | None) -> None:
    client.produce(TOPIC, "lz4", RECORDS[:1])
    client.produce(TOPIC, "lz4", RECORDS[:1], idempotent=idempotent)
    assert len(client.consume(TOPIC, BEGINNING, 2)) == 2


def _join(client: Client, ways: set[Way], have_beaten: Callable[[], bool]) -> None:
    """Join a group with the classic protocol, and with the consumer protocol if the client supports it."""
    members = [client.join(Joining(f"member-{way}", f"group-{way}", TOPIC, way)) for way in ways]
    _wait(lambda: all(len(member.places()) == 2 for member in members) and have_beaten())
    for member in members:
        member.leave()


def _transact(client: Transactional) -> None:
    with closing(client.transactor("transactional", group="transacting", source=TOPIC)) as transactor:
        transactor.begin()
        transactor.send(TOPIC, [b"value"])
        transactor.send_offset(1)
        transactor.commit()


def _administer(admin: Administrator) -> None:
    admin.create_topic("made", 1, {})
    admin.create_partitions("made", 2)
    admin.describe_topic("made")
    admin.describe_configs("made")
    admin.describe_cluster()
    admin.list_offsets(TOPIC, "latest")
    admin.committed("group-range", TOPIC)
    admin.delete_topic("made")


def _wait(condition: Callable[[], bool]) -> None:
    """Wait for the condition without failing: the comparison afterwards shows the difference."""
    until = time.monotonic() + SECONDS_MAX
    while not condition() and time.monotonic() < until:
        time.sleep(PAUSE_SECONDS)
