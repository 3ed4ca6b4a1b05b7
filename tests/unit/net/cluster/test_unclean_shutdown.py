"""A broker that may have lost records: it waits until it shares no ISR, if a controller can change that."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.base.units import BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import ensure_paths
from odradek.net.cluster import unclean_shutdown as unclean_start
from odradek.net.cluster.unclean_shutdown import await_replacement

US, OTHER = BrokerId(1), BrokerId(2)
NAMES = [TopicPartition(TopicName("t"), index) for index in range(2)]
DELETED = TopicPartition(TopicName("gone"), 0)
PATIENCE_MS = 600_000


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[SqliteTree]:
    tree = SqliteTree(tmp_path / "metadata.sqlite", durable=False)
    layout.ensure_startup_paths(tree)
    ensure_paths(tree, [layout.broker(OTHER)])
    yield tree
    tree.close()


def in_sync(tree: SqliteTree, name: TopicPartition, *isr: BrokerId) -> None:
    data = layout.encode_partition_state(layout.PartitionState(isr[0], LeaderEpoch(0), 0, isr, 0))
    ensure_paths(tree, [layout.partition_state(*name)])
    tree.set(layout.partition_state(*name), data)


def wait(*arguments: Any, **keywords: Any) -> None:
    asyncio.run(await_replacement(*arguments, **keywords))


def run_at_each_wait(monkeypatch: pytest.MonkeyPatch, happens: Callable[[float], object]) -> None:
    """Let an event happen at each wait, instead of passing time."""

    async def sleep(seconds: float) -> None:
        happens(seconds)

    monkeypatch.setattr(unclean_start.asyncio, "sleep", sleep)


def test_start_waits_for_each_partition(tree: SqliteTree, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        in_sync(tree, name, US, OTHER)
    names = iter(NAMES)
    run_at_each_wait(monkeypatch, lambda _: in_sync(tree, next(names), OTHER))
    wait(tree, US, [*NAMES, DELETED], PATIENCE_MS)
    assert next(names, None) is None, "it looked until the last had changed"


def never(_: float) -> None:
    raise AssertionError("it waits")


@pytest.mark.parametrize("isr", [(US,), (OTHER,)])
def test_start_does_not_wait_for_isrs_without_others_or_itself(
    tree: SqliteTree, monkeypatch: pytest.MonkeyPatch, isr: tuple[BrokerId, ...]
) -> None:
    in_sync(tree, NAMES[0], *isr)
    run_at_each_wait(monkeypatch, never)
    wait(tree, US, NAMES, PATIENCE_MS)


def test_start_does_not_wait_for_topics_being_deleted(tree: SqliteTree, monkeypatch: pytest.MonkeyPatch) -> None:
    in_sync(tree, NAMES[0], US, OTHER)
    ensure_paths(tree, [layout.delete_topic(NAMES[0].topic)])
    run_at_each_wait(monkeypatch, never)
    wait(tree, US, NAMES, PATIENCE_MS)


def test_first_of_several_lost_brokers_does_not_wait(tree: SqliteTree, monkeypatch: pytest.MonkeyPatch) -> None:
    in_sync(tree, NAMES[0], US, OTHER)
    run_at_each_wait(monkeypatch, lambda _: tree.delete(layout.broker(OTHER)))
    wait(tree, US, NAMES, PATIENCE_MS)


def test_broker_starts_if_no_isr_changes_in_time(tree: SqliteTree, caplog: pytest.LogCaptureFixture) -> None:
    in_sync(tree, NAMES[0], US, OTHER)
    wait(tree, US, NAMES, timeout_ms=0)
    assert (
        "broker 1 starts although it is still in the ISR of 1 partitions: no controller removed it in time"
        in caplog.messages
    )


def test_broker_with_missing_logs_waits_for_others_to_start(tree: SqliteTree, monkeypatch: pytest.MonkeyPatch) -> None:
    in_sync(tree, NAMES[0], US, OTHER)
    tree.delete(layout.broker(OTHER))
    steps = iter((lambda: ensure_paths(tree, [layout.broker(OTHER)]), lambda: in_sync(tree, NAMES[0], OTHER)))
    run_at_each_wait(monkeypatch, lambda _: next(steps)())
    wait(tree, US, NAMES, PATIENCE_MS, missing=NAMES[:1])
    assert next(steps, None) is None, "another one came, and leads"


@pytest.mark.parametrize("missing", [[], NAMES[1:]])
def test_lone_broker_without_missing_isr_logs_does_not_wait(
    tree: SqliteTree, monkeypatch: pytest.MonkeyPatch, missing: list[TopicPartition]
) -> None:
    in_sync(tree, NAMES[0], US, OTHER)
    tree.delete(layout.broker(OTHER))
    run_at_each_wait(monkeypatch, never)
    wait(tree, US, NAMES, PATIENCE_MS, missing)


def test_broker_with_missing_logs_does_not_wait_forever(tree: SqliteTree, monkeypatch: pytest.MonkeyPatch) -> None:
    in_sync(tree, NAMES[0], US, OTHER)
    tree.delete(layout.broker(OTHER))
    times = itertools.count(0, PATIENCE_MS / 1000 / 8)
    monkeypatch.setattr(unclean_start, "time", SimpleNamespace(monotonic=lambda: next(times)))
    run_at_each_wait(monkeypatch, lambda _: None)
    wait(tree, US, NAMES, PATIENCE_MS, missing=NAMES)
    assert next(times) < PATIENCE_MS / 1000, "a quarter"
