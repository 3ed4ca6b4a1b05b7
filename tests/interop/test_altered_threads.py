"""Dynamic changes of thread settings: the number of mover threads and the rate limit of the cleaner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from support.asking import created
from support.configuring import BROKER, SET, TOPIC, altered
from support.large_requests import LocalBroker, answer, can_store, large, local_broker, values
from support.raw_client import RawClient
from support.waiting import until

DONE = (ErrorCode.NONE, "")
SLOW, FAST = "1.0", "1.0E9"  # Of its rate: hours for a pass, and no time at all.


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    slow = {"log.cleaner.io.max.bytes.per.second": SLOW, "log.cleaner.backoff.ms": "0"}
    with local_broker(tmp_path / "here", **slow) as running:
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        created(connected, "t")
        yield connected


def movers() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("odradek-mover")}


@pytest.mark.skipif(not can_store(), reason="there is no mover here, or none that stores")
def test_mover_threads_increase_with_their_setting(broker: LocalBroker, client: RawClient) -> None:
    others = movers()

    def moved(count: int) -> None:
        client.send(large(seed=count))
        assert answer(client.read_frame())[0] == ErrorCode.NONE
        assert len(values(client)) == count

    moved(1)
    first = movers() - others
    assert first
    assert altered(client, BROKER, "", ("num.network.threads", SET, "6")) == DONE
    moved(2)
    assert len(movers() - others - first) >= len(first) + 3
    until(lambda: not first & movers())
    assert altered(client, BROKER, "", ("num.network.threads", SET, "3")) == DONE
    moved(3)
    until(lambda: len(movers() - others) == len(first))


def test_waiting_cleaner_resumes_when_its_rate_limit_is_raised(broker: LocalBroker, client: RawClient) -> None:
    compact = [("cleanup.policy", SET, "compact"), ("min.cleanable.dirty.ratio", SET, "0.01")]
    assert altered(client, TOPIC, "t", ("segment.bytes", SET, str(1 << 20))) == DONE
    for seed in range(3):
        client.send(large(seed=seed))
        assert answer(client.read_frame())[0] == ErrorCode.NONE
    assert altered(client, TOPIC, "t", *compact) == DONE
    until(lambda: broker.on_loop(lambda running: running.shell.broker.cleaner.is_running))
    assert broker.on_loop(lambda running: running.shell.broker.cleaner.stats.passes) == 0
    assert altered(client, BROKER, "", ("log.cleaner.io.max.bytes.per.second", SET, FAST)) == DONE
    until(lambda: broker.on_loop(lambda running: running.shell.broker.cleaner.stats.passes) >= 1)
