"""A byte of a sealed segment flipped under a running broker: errors of consumers, and reports of doctor and verify."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import CorruptRecordError, KafkaError

from odradek.app.main import main
from odradek.base.errors import ErrorCode
from odradek.log.files.disk import RealDisk
from odradek.log.segment.checkpoints import read_damages
from odradek.record.record_batch import iter_batches
from odradek.wire.messages.fetch import FetchResponse
from support.asking import FETCH, created, fetch_request, produced
from support.raw_client import RawClient
from support.serving import Serving
from support.waiting import until

RECORDS, SIZE, SEGMENT_BYTES = 30, 100_000, 1_048_576
DAMAGED = 3
TIMES = [time.time_ns() // 1_000_000 - RECORDS + number for number in range(RECORDS)]
LENGTH, BODY = 8, 61  # The length of a batch; that of its record.
BAD = TopicPartition("bad", 0)
SOON = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "0"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    """Start a broker without topic `bad` in memory: it has three segments, known from the checkpoints."""
    with Serving(tmp_path, **{"log.segment.bytes": str(SEGMENT_BYTES)}, **SOON) as running:
        with RawClient(running.port) as client:
            created(client, "bad", "good")
            for number in range(RECORDS):
                produced(client, "bad", b"%d" % (number % 10) * SIZE, timestamp_ms=TIMES[number])
            produced(client, "good", b"good")
        assert running.stop() == 0
        yield running.start()
    assert "Traceback" not in running.errors()


def first_segment(broker: Serving) -> Path:
    first, *others = sorted((broker.directory / "data" / "bad-0").glob("*.log"))
    assert len(others) >= 2
    return first


def position(broker: Serving) -> int:
    return first_segment(broker).stat().st_size // 10 * DAMAGED


def flip(broker: Serving, byte: int) -> None:
    with first_segment(broker).open("r+b") as file:
        file.seek(position(broker) + byte)
        (before,) = file.read(1)
        file.seek(position(broker) + byte)
        file.write(bytes([before ^ 1]))


def consumer(broker: Serving) -> KafkaConsumer:
    made = KafkaConsumer(
        bootstrap_servers=broker.address, check_crcs=True, enable_auto_commit=False, max_partition_fetch_bytes=3 * SIZE
    )
    made.assign([BAD])
    return made


def consumed(reader: KafkaConsumer, offset: int) -> list[int]:
    """Return the offsets that are read from `offset` on, up to the end or an error."""
    found: list[int] = []
    reader.seek(BAD, offset)
    while reader.position(BAD) < RECORDS:
        for records in reader.poll(timeout_ms=5_000).values():
            found += [record.offset for record in records]
    return found


def damage_reports(broker: Serving, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Return the doctor's findings of damage."""
    capfd.readouterr()
    status = main(["doctor", broker.address, "--json"])
    findings = json.loads(capfd.readouterr().out)["findings"]
    found = [one for one in findings if one["check"] == "log dirs" and one["state"] == "wrong"]
    assert status == bool(found)
    assert all("odradek log verify --repair" in one["advice"] for one in found)
    return [one["says"] for one in found]


def error_at(client: RawClient, offset: int) -> ErrorCode:
    (part,) = client.request(fetch_request("bad", offset, bytes_max=SIZE), FETCH, FetchResponse).responses[0].partitions
    batches = list(iter_batches(part.records or b""))  # type: ignore[arg-type]  # What was received is bytes.
    assert bool(part.error_code) == (not batches)
    return ErrorCode(part.error_code)


def test_damage_found_by_a_fetch_is_reported(broker: Serving, capfd: pytest.CaptureFixture[str]) -> None:
    assert damage_reports(broker, capfd) == []
    flip(broker, LENGTH)
    reader = consumer(broker)
    with pytest.raises(KafkaError):
        consumed(reader, DAMAGED - 1)
    until(lambda: bool(damage_reports(broker, capfd)))
    (message,) = damage_reports(broker, capfd)
    assert message.startswith(f"1 damaged place in {broker.directory / 'data'}: ")
    assert f"bad-0 at byte {position(broker)} of {first_segment(broker).name} since 20" in message
    assert f"readable again from offset {DAMAGED + 1}" in message
    assert consumed(reader, DAMAGED + 1) == list(range(DAMAGED + 1, RECORDS))
    reader.close()


@pytest.mark.nightly
def test_a_wrong_checksum_is_reported_until_retention_deletes_it(
    broker: Serving, capfd: pytest.CaptureFixture[str]
) -> None:
    """The consumer finds it itself. The broker finds it once it reads the batch, and remembers it over kill -9."""
    data = broker.directory / "data"
    flip(broker, BODY)
    reader = consumer(broker)
    with pytest.raises(CorruptRecordError):
        consumed(reader, DAMAGED)
    assert damage_reports(broker, capfd) == [], "nobody has told the broker"
    with pytest.raises(KafkaError):
        reader.offsets_for_times({BAD: TIMES[DAMAGED]}, timeout_ms=10_000)  # It retries all the time.
    reader.close()
    until(lambda: bool(damage_reports(broker, capfd)))
    (message,) = damage_reports(broker, capfd)
    assert f"bad-0 at byte {position(broker)} of {first_segment(broker).name} since 20" in message
    broker.kill()
    assert main(["log", "verify", str(data)]) == 1
    assert f"bad-0: byte {position(broker)} of {first_segment(broker).name} has not been served since 20" in (
        capfd.readouterr().out
    )
    broker.start()
    with RawClient(broker.port) as client:
        assert error_at(client, DAMAGED) == ErrorCode.CORRUPT_MESSAGE
        assert error_at(client, DAMAGED - 1) == error_at(client, DAMAGED + 1) == ErrorCode.NONE
    assert damage_reports(broker, capfd) == [message], "and since when"
    assert broker.stop() == 0
    broker.start({"log.retention.bytes": str(SEGMENT_BYTES)})
    until(lambda: not damage_reports(broker, capfd))
    assert main(["log", "verify", str(data)]) == 0


def test_damage_found_by_verify_is_not_served(broker: Serving, capfd: pytest.CaptureFixture[str]) -> None:
    """Beside a running broker verify only reports; otherwise it records the damage for the next start."""
    data = broker.directory / "data"
    known = data / "odradek-damage-checkpoint"
    flip(broker, BODY)
    before = known.read_bytes() if known.exists() else None
    assert main(["log", "verify", str(data)]) == 1
    assert (known.read_bytes() if known.exists() else None) == before
    assert broker.stop() == 0
    for _ in range(2):
        assert main(["log", "verify", str(data)]) == 1
        assert [one.position for one in read_damages(RealDisk(), str(known))] == [position(broker)]
    broker.start()
    with RawClient(broker.port) as client:
        assert error_at(client, DAMAGED) == ErrorCode.CORRUPT_MESSAGE
        assert error_at(client, DAMAGED - 1) == error_at(client, DAMAGED + 1) == ErrorCode.NONE
    (message,) = damage_reports(broker, capfd)
    assert f"bad-0 at byte {position(broker)} of {first_segment(broker).name} since 20" in message
    assert f"readable again from offset {DAMAGED + 1}" in message
    assert broker.stop() == 0
    flip(broker, BODY)
    assert main(["log", "verify", str(data)]) == 0, "it is whole again"
    broker.start()
    with RawClient(broker.port) as client:
        assert error_at(client, DAMAGED) == ErrorCode.NONE
    assert damage_reports(broker, capfd) == []
