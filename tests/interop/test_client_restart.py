"""The client through kill -9 of a broker: no acknowledged record is lost, and reads are in order without duplicates.

An idempotent producer writes no record twice.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from client_peers import quick_config

from odradek.base.units import TopicName, TopicPartition
from odradek.client.admin.admin import NewTopic, create_topics
from odradek.client.cluster.cluster import Cluster
from odradek.client.consumer.fetcher import LATEST, Fetcher, list_offsets
from odradek.client.producer.idempotence import idempotent
from odradek.client.producer.producer import Producer
from odradek.record.records import decode
from support.serving import Serving

AT = TopicPartition(TopicName("t"), 0)
ROUNDS = 3


def kill_and_start(broker: Serving, stop: threading.Event) -> None:
    for _ in range(ROUNDS):
        time.sleep(0.5)
        broker.kill()
        time.sleep(0.2)
        broker.start()
    stop.set()


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["at least once", "once"])
def test_acknowledged_records_survive_repeated_kills(tmp_path: Path, is_idempotent: bool) -> None:
    with Serving(tmp_path) as broker, Cluster(quick_config(broker.address)) as cluster:
        create_topics(cluster, [NewTopic("t", 1, 1)])
        stop = threading.Event()
        killer = threading.Thread(target=kill_and_start, args=(broker, stop))
        killer.start()
        producer = Producer(cluster, sequences=idempotent(cluster) if is_idempotent else None)
        fetcher = Fetcher(cluster, {AT: 0})
        sent, read = 0, []
        while not stop.is_set():
            for _ in range(10):
                producer.send("t", b"%d" % sent)
                sent += 1
            producer.flush()  # Records from here on are acknowledged.
            read += values(fetcher, 100)
        killer.join()
        end = list_offsets(cluster, {AT: LATEST})[AT].offset
        while fetcher.position(AT) < end:
            read += values(fetcher, 1_000)
    offsets = [offset for offset, _ in read]
    assert offsets == list(range(end)), "every offset once, in order"
    numbers = [int(value) for _, value in read]
    assert sorted(set(numbers)) == list(range(sent)), "all that was acknowledged is there"
    # A lost response duplicates its ten records, at most once per kill.
    assert len(numbers) - sent <= (0 if is_idempotent else 10 * ROUNDS)
    firsts = list(dict.fromkeys(numbers))
    assert firsts == sorted(firsts), "in the order they were sent"


def values(fetcher: Fetcher, timeout_ms: int) -> list[tuple[int, bytes]]:
    return [
        (record.offset, record.value or b"")
        for fetched in fetcher.poll(timeout_ms)
        for batch in fetched.batches()
        for record in decode(batch)
        if record.offset >= fetched.fetch_offset
    ]
