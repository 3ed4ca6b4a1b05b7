"""Logs cleaned by Odradek and by Apache Kafka: Kafka's tools print the same of both, and Kafka serves ours."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from compacted_tables import (
    fill_tables,
    is_clean,
    last_values,
    read_tables,
    set_policies,
    table_of,
    tables,
    values,
    write_values,
)
from contents import CLEANER, CODECS, create_topics, send, until
from kafka_peer import REAL_KAFKA, VERSION, KafkaBroker
from kafka_zookeeper import OLD_KAFKA, V0, V3, OldKafka
from moved import copy_under, dump_log_of, made

from support.golden import Record
from support.serving import Serving

pytestmark = [*REAL_KAFKA, *OLD_KAFKA, pytest.mark.own_peer("exchanges directories with a running Apache Kafka")]

TWO = ("none", "gzip")
GAP = "Non-consecutive offsets in FILE"
NO_TIME = "Found timestamp mismatch in FILE"
MISMATCH = "Mismatches in FILE"
FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


class Cleaned(NamedTuple):
    """A data directory with cleaned tables, and the records that clients found in them, by isolation level."""

    data: Path
    found: dict[str, dict[str, list[Record]]]


def found_at(address: str) -> dict[str, dict[str, list[Record]]]:
    return {level: read_tables(address, isolation=level) for level in ("read_committed", "read_uncommitted")}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Cleaned:
    with Serving(tmp_path_factory.mktemp("ours"), **CLEANER) as broker:
        create_topics(broker.address, tables())
        fill_tables(broker.address)
        return Cleaned(broker.directory / "data", found_at(broker.address))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with KafkaBroker(tmp_path_factory.mktemp("theirs"), settings=CLEANER) as kafka:
        create_topics(kafka.address, tables())
        fill_tables(kafka.address)
        return kafka.data


@pytest.mark.parametrize("version", [V3, VERSION, V0])
def test_dump_log_prints_the_same_of_cleaned_logs_as_of_kafkas(
    ours: Cleaned, theirs: Path, tmp_path: Path, version: str
) -> None:
    """Of all files, with the gaps between offsets and the missing timestamp of an empty batch."""
    of_all = dumped_lines(version, tmp_path, ours.data, FILES, "--deep-iteration")
    assert of_all == dumped_lines(version, tmp_path, theirs, FILES, "--deep-iteration")
    assert {GAP, NO_TIME} <= of_all
    assert ("  -" in of_all) == (version == VERSION), "-1 is followed by the first offset of a segment"
    for options in (("--index-sanity-check",), ("--verify-index-only",)):
        of_indexes = dumped_lines(version, tmp_path, ours.data, FILES[1:3], *options)
        assert of_indexes == dumped_lines(version, tmp_path, theirs, FILES[1:3], *options)
    # In 0.11 an index entry has the first offset of a batch, and in both of these the last.
    assert (MISMATCH in of_all) == (MISMATCH in of_indexes) == (version == V0)


def dumped_lines(version: str, folder: Path, data: Path, suffixes: tuple[str, ...], *options: str) -> set[str]:
    """Return the beginnings of the lines that the tool prints of the tables' files."""
    codecs = CODECS if version != V0 else CODECS[:4]  # zstd is newer than that version.
    paths = [path for codec in codecs for path in sorted((data / f"{table_of(codec)}-0").iterdir())]
    chosen = [path for path in paths if path.suffix in suffixes and path.stat().st_size]
    assert {path.suffix for path in chosen} == set(suffixes)
    text = re.sub(r"\S*/\S+", "FILE", dump_log_of(version, folder, *chosen, options=options))
    assert "isvalid: false" not in text
    return {re.match(r"[^\d:]*", line)[0] for line in text.splitlines()}  # type: ignore[index]  # It may be empty.


@pytest.mark.parametrize("version", [V3, VERSION])
def test_kafka_serves_and_cleans_our_cleaned_logs(ours: Cleaned, tmp_path: Path, version: str) -> None:
    with made(tmp_path, version, CLEANER) as kafka:
        create_topics(kafka.address, tables(is_modern=version == VERSION))
        kafka.stop()
        copy_under(ours.data, kafka.data, "table.*")
        kafka.start()
        assert found_at(kafka.address) == ours.found
        now = time.time_ns() // 1_000_000
        for codec in CODECS:
            send(kafka.address, table_of(codec), [(b"k39", b"new", now), (b"t9", None, now)], codec)
            send(kafka.address, table_of(codec), [(b"end", b"end", now + 20_000)], codec)
        until(lambda: all(is_clean(records) for records in read_tables(kafka.address).values()))
        for name, records in read_tables(kafka.address).items():
            expected = last_values(ours.found["read_committed"][name]) | {b"k39": b"new", b"end": b"end"}
            del expected[b"t9"]
            assert last_values(records) == expected


def test_a_topic_no_longer_compacted_by_kafka_is_kept(tmp_path: Path) -> None:
    """Its cleaner-offset-checkpoint still names the topic, and under ZooKeeper nothing else in the folder does."""
    kept, compacted = (table_of(codec) for codec in TWO)
    with OldKafka(tmp_path, V3, CLEANER) as kafka:
        create_topics(kafka.address, tables(TWO, is_modern=False))
        fill_tables(kafka.address, TWO)
        set_policies(kafka.address, {kept: "delete"})
        kafka.stop()  # The stop writes the checkpoint.
        assert f"\n{kept} 0 " in (kafka.data / "cleaner-offset-checkpoint").read_text()
        kafka.start()
        write_values(kafka.address, kept, compacted, number=1)
        until(lambda: values(kafka.address, compacted) == [b"12"])
        assert values(kafka.address, kept) == [b"10", b"11", b"12"]
        before = read_tables(kafka.address, TWO)[f"{kept}-0"]
    with Serving(tmp_path, **CLEANER, **{"log.cleaner.min.cleanable.ratio": "0.01", "log.roll.ms": "1000"}) as broker:
        assert f"cleanup.policy=compact`: {compacted}, {kept}" in broker.errors()
        set_policies(broker.address, {compacted: "compact"})
        write_values(broker.address, kept, compacted, number=2)
        until(lambda: values(broker.address, compacted) == [b"22"])
        assert values(broker.address, kept) == [b"10", b"11", b"12", b"20", b"21", b"22"]
        assert read_tables(broker.address, TWO)[f"{kept}-0"][: len(before)] == before
