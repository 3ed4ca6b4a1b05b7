"""Loop time with many topics: no callback takes more than 20 ms of processor time of the loop's thread.

In `odradek serve` garbage collections count. The broker of odradek.testing is in a process of its user, which decides
on collections; there the number of objects that a collection examines is limited.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from odradek.testing import Broker
from support.asking import created
from support.loop_time import Timing, no_long_callbacks, timed_loops
from support.many_topics import delete_topics, grow_topic, partition_counts
from support.raw_client import RawClient
from support.timed_serve import TimedServing

MANY = 1000
PER_REQUEST = 1000
OBJECTS_PER_TOPIC_MAX = (
    70  # Objects that a collection examines; 58 today, and a full collection of 1,000 topics takes 18 ms.
)
CONFIGS = {
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "0",
}


class Timed:
    """A broker with timed callbacks, and a client of it."""

    def __init__(self, timing: Timing, port: int, owns_process: bool) -> None:
        self._timing = timing
        self._owns_process = owns_process
        self.client = RawClient(port)

    def no_long_callbacks(self) -> AbstractContextManager[None]:
        return no_long_callbacks(self._timing, counts_collections=self._owns_process)


@pytest.fixture(params=["testing", "serve"])
def timed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Timed]:
    if request.param == "serve":
        with TimedServing(tmp_path, **CONFIGS) as serving:
            yield Timed(serving, serving.port, owns_process=True)
        return
    gc.collect()
    gc.freeze()  # Other objects in this process are not the broker's.
    try:
        with timed_loops() as timing, Broker(CONFIGS) as broker:
            yield Timed(timing, broker.port, owns_process=False)
    finally:
        gc.unfreeze()


def names(prefix: str, count: int = MANY) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


@pytest.mark.share(2)
def test_topics_created_by_the_hundred_do_not_block_the_loop(timed: Timed) -> None:
    with timed.client as client:
        created(client, "first")
        with timed.no_long_callbacks():
            for start in range(0, MANY, PER_REQUEST):
                created(client, *names("t")[start : start + PER_REQUEST])
        with timed.no_long_callbacks():
            assert len(partition_counts(client)) == MANY + 1
        with timed.no_long_callbacks():
            time.sleep(2)  # Checkpoints, retention.
        with timed.no_long_callbacks():
            delete_topics(client, names("t"))
        with timed.no_long_callbacks():
            time.sleep(2)  # Their files are deleted.
        assert partition_counts(client) == {"first": 1}


def test_a_topic_adds_few_objects_to_a_collection() -> None:
    with Broker(CONFIGS) as broker, RawClient(broker.port) as client:
        created(client, "first")
        gc.collect()
        before = len(gc.get_objects())
        created(client, *names("t"))
        gc.collect()
        assert len(gc.get_objects()) - before < OBJECTS_PER_TOPIC_MAX * MANY


def test_topics_created_one_by_one_do_not_block_the_loop(timed: Timed) -> None:
    with timed.client as client:
        created(client, "first")
        with timed.no_long_callbacks():
            for name in names("t_with_underscores", 300):
                created(client, name)
        with timed.no_long_callbacks():
            for name in names("t_with_underscores", 300):
                delete_topics(client, [name])
        assert partition_counts(client) == {"first": 1}


def test_a_growing_topic_does_not_block_the_loop(timed: Timed) -> None:
    with timed.client as client:
        created(client, "t")
        with timed.no_long_callbacks():
            grow_topic(client, "t", MANY)
        with timed.no_long_callbacks():
            assert partition_counts(client) == {"t": MANY}
        with timed.no_long_callbacks():
            delete_topics(client, ["t"])
        assert partition_counts(client) == {}
