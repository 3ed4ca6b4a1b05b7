"""Execution of the core's effects when the metadata tree, a disk or the broker itself fails."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import pytest

from odradek.base.errors import ErrorCode
from odradek.coordination.tree import Unavailable
from odradek.core.broker.effects import Change, Changed
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.core.kernel.chores import Chores
from odradek.log.files.disk import DiskFailed
from odradek.net.loop.pools import Pool
from odradek.net.loop.threads import completed_future
from odradek.net.loop.traffic import Latencies
from odradek.net.shell.effect_executor import Effects
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from support.at_once import AtOnce
from support.in_memory import Harness

T = TypeVar("T")

CREATE = CreateTopicsRequest(
    topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])],
    timeout_ms=1_000,
)
LACK = DiskFailed(errno.EMFILE, "too many open files", "/data/checkpoint")
BROKEN = DiskFailed(errno.EIO, "input/output error", "/data/checkpoint")


class Failing(AtOnce):
    """A shell in which chores may fail."""

    def in_thread(self, work: Callable[[], T], then: Callable[[Future[T]], None], pool: Pool) -> None:
        then(completed_future(work))


class Chore:
    def __init__(self, failure: DiskFailed | None) -> None:
        self._failure = failure

    def run(self) -> None:
        if self._failure is not None:
            raise self._failure


def clean(step: Clean) -> Cleaned:
    return step.run(lambda _: None)


def make_changes_fail(harness: Harness, failure: Exception) -> None:
    def change(_: Change) -> Changed:
        raise failure

    effects = harness._effects
    effects.writers = effects.writers._replace(change=change)


def test_topic_change_refused_by_the_tree_is_a_server_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness(tmp_path)
    make_changes_fail(harness, Unavailable("no tree"))
    (topic,) = harness.request(CREATE, 5, CreateTopicsResponse).topics
    assert topic.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "unexpected error in CreateTopics" in caplog.text
    assert not harness._effects.are_changing


def test_a_broken_invariant_ends_the_process(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    make_changes_fail(harness, AssertionError("this can't be"))
    with pytest.raises(AssertionError, match="this can't be"):
        harness.request(CREATE, 5, CreateTopicsResponse)


def test_lack_of_descriptors_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Other failures are reported each time; both are retried by the next round."""
    caplog.set_level(logging.WARNING)
    harness = Harness(tmp_path)
    shell = Failing(lambda: harness.now, nullcontext)
    writers = harness._effects.writers
    effects = Effects(shell, harness.broker, harness, writers, clean=clean, syncs=Latencies())
    counts = []
    for round_of in ((LACK, LACK), (LACK, BROKEN), (None,), (LACK,)):
        caplog.clear()
        effects.start(Chores(tuple(map(Chore, round_of))))
        counts.append(caplog.text.count("(will retry)"))
    assert counts == [1, 1, 0, 1]
