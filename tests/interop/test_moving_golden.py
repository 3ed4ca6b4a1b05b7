"""Complete data directories of Apache Kafka 3.9.1 and 0.11.0.3, from tests/golden, served by Odradek without Java."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from compacted_tables import last_values, set_policies, values, write_values
from confluent_kafka import TopicPartition
from contents import (
    CLEANER,
    IN_TRANSACTIONS,
    MOST,
    OPEN,
    SECONDS_MAX,
    found,
    group_offsets,
    read,
    send,
    transactional,
    until,
)

from odradek.app.main import main
from odradek.log.files.meta_properties import WrongDirectory
from odradek.testing import Broker
from support.golden import found_in, unpack

VERSIONS = ("3.9.1", "0.11.0.3")
# Committed offsets age in the repository, and are compared as they were.
KEPT = {
    "offsets.retention.minutes": 2**31 - 1,
    "transactional.id.expiration.ms": 2**31 - 1,
    "log.cleaner.enable": False,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.mark.parametrize("version", VERSIONS)
def test_all_contents_are_served_and_writable(tmp_path: Path, version: str) -> None:
    data, before = unpack(version, tmp_path), found_in(version)
    assert main(["log", "verify", str(data)]) == 0
    with Broker(KEPT, directory=data) as broker:
        now = found(broker.address)
        assert now.records == before.records
        assert now.starts == before.starts
        assert now.offsets == before.offsets
        # The open transaction is years old: it may or may not have timed out yet.
        unlike = [name for name in before.committed if now.committed[name] != before.committed[name]]
        assert unlike in ([], ["transactions-0"])
        transactional(broker.address, OPEN)
        expected = [*before.committed["transactions-0"], before.records["transactions-0"][-1]]
        until(lambda: committed(broker.address) == expected)
        assert group_offsets(broker.address, IN_TRANSACTIONS) == before.offsets[IN_TRANSACTIONS]
        broker.kill()
        broker.start()
        assert found(broker.address).records == before.records
        producer = transactional(broker.address, OPEN)
        producer.begin_transaction()
        producer.produce("transactions", b"next", partition=0)
        producer.commit_transaction(SECONDS_MAX)
        assert [record[4] for record in committed(broker.address)[-2:]] == [b"behind it", b"next"]
    assert main(["log", "verify", str(data)]) == 0


def committed(address: str) -> list[tuple[object, ...]]:
    (records,) = read(address, [TopicPartition("transactions", 0)], "read_committed").values()
    return list(records)


EAGER = KEPT | CLEANER | {"log.cleaner.enable": True, "log.cleaner.min.cleanable.ratio": 0.01, "log.roll.ms": 1000}


@pytest.mark.parametrize("version", VERSIONS)
def test_odradek_compacts_logs_that_kafka_compacted(tmp_path: Path, version: str) -> None:
    """Kafka's gaps, tombstones and delete horizons are handled: only superseded values are removed."""
    data, before = unpack(version, tmp_path), found_in(version)
    with Broker(EAGER, directory=data) as broker:
        set_policies(broker.address, dict.fromkeys(MOST, "compact"))
        now = time.time_ns() // 1_000_000
        for topic in MOST:
            send(broker.address, topic, [(b"k0", b"new", now), (b"n", b"new", now)])
            send(broker.address, topic, [(b"end", b"end", now + 5000)])
        expected = {topic: last_values(before.committed[f"{topic}-0"]) | NEW for topic in MOST}
        partitions = [TopicPartition(topic, 0) for topic in MOST]

        def is_clean() -> bool:
            there = read(broker.address, partitions, "read_committed")
            assert {topic: last_values(there[f"{topic}-0"]) for topic in MOST} == expected
            return all(len({record[3] for record in some}) == len(some) for some in there.values())

        until(is_clean)
        now_there = found(broker.address).records
        assert all(now_there[name] == before.records[name] for name in now_there if name.rpartition("-")[0] not in MOST)
    assert main(["log", "verify", str(data)]) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_formerly_compacted_topic_keeps_every_value(tmp_path: Path, version: str) -> None:
    """Kafka's cleaner-offset-checkpoint names even a topic whose policy is delete by now."""
    data, before = unpack(version, tmp_path), found_in(version).records["compacted-0"]
    assert "\ncompacted 0 " in (data / "cleaner-offset-checkpoint").read_text()
    with Broker(EAGER, directory=data) as broker:
        set_policies(broker.address, {"both": "compact"})
        for number in (1, 2):  # The other topic shows that the cleaner ran; twice, since it alternates.
            write_values(broker.address, "compacted", "both", number=number)
            until(partial(is_left, broker.address, b"%d2" % number))
        assert values(broker.address, "compacted") == [b"10", b"11", b"12", b"20", b"21", b"22"]
        assert found(broker.address).records["compacted-0"][: len(before)] == before


def is_left(address: str, value: bytes) -> bool:
    return values(address, "both") == [value]


NEW = {b"k0": b"new", b"n": b"new", b"end": b"end"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_id_is_kafkas(tmp_path: Path, version: str) -> None:
    data = unpack(version, tmp_path)
    with pytest.raises(WrongDirectory, match=r"has broker\.id=1, but this broker has broker\.id=5"):
        Broker(directory=data, broker_id=5).start()
    with Broker(directory=data):
        assert "broker.id=1\n" in (data / "meta.properties").read_text()
