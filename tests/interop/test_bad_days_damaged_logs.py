"""Damaged logs on disk, by a flipped bit or a lost segment file: what the broker still serves, and its messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.app.main import main
from odradek.base.errors import ErrorCode
from odradek.record.record_batch import iter_batches
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from support.asking import FETCH, created, delete, fetch, fetch_all, fetch_request, produce, produced
from support.raw_client import RawClient
from support.serving import Serving

RECORDS = 30
SIZE = 100_000
SEGMENT_BYTES = 1_048_576


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    """Start a broker with topic `bad` of three segments and topic `good`, all synced."""
    with Serving(tmp_path, **{"log.segment.bytes": str(SEGMENT_BYTES)}) as running:
        with RawClient(running.port) as client:
            created(client, "bad", "good")
            for number in range(RECORDS):
                produced(client, "bad", b"%d" % number * SIZE)
            produced(client, "good", b"before")
        yield running
    assert "Traceback" not in running.errors()


def segments(broker: Serving) -> list[Path]:
    found = sorted((broker.directory / "data" / "bad-0").glob("*.log"))
    assert len(found) >= 3
    return found


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_data_after_a_flipped_bit_is_set_aside(broker: Serving, capfd: pytest.CaptureFixture[str]) -> None:
    first, *later = segments(broker)
    kept = {path.name + ".aside": path.read_bytes() for path in later}
    broker.kill()
    # As after an early power failure: no data is known to be synced.
    (broker.directory / "data" / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    flip(first, 70)
    broker.start()
    pattern = (
        r"bad-0: truncated to offset 0 \(byte 0 of \S+: checksum .+\); "
        r"at least (\d+) records in \d+ bytes were moved to"
    )
    (records,) = re.findall(pattern, broker.errors())
    with RawClient(broker.port) as client:
        assert produce(client, "bad", b"goes on") == (ErrorCode.NONE, 0)
        assert fetch_all(client, "bad") == [(0, b"goes on")]
        assert fetch_all(client, "good") == [(0, b"before")]
    assert int(records) > RECORDS // 2
    folder = first.parent
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    capfd.readouterr()
    assert main(["doctor", broker.address, "--json"]) == 0
    findings = json.loads(capfd.readouterr().out)["findings"]
    (noted,) = (one for one in findings if one["check"] == "log dirs")
    assert noted["says"].startswith(f"{len(kept) + 1} files with data truncated from logs (*.aside)")


def test_a_log_with_a_missing_segment_is_not_served(broker: Serving) -> None:
    _, second, *_ = segments(broker)
    assert broker.stop() == 0
    away = {path: path.with_name(f"away-{path.name}") for path in second.parent.glob(f"{second.stem}.*")}
    for path, other in away.items():
        path.rename(other)
    for _ in range(2):
        broker.start()
        assert f"bad-0 is offline: {second} is missing: the log has nothing from offset {int(second.stem)} to " in (
            broker.errors()
        )
        with RawClient(broker.port) as client:
            assert fetch(client, "bad", 0) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
            assert produce(client, "bad", b"x") == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert fetch_all(client, "good") == [(0, b"before")]
        broker.stop()
    for path, other in away.items():
        other.rename(path)
    broker.start()
    with RawClient(broker.port) as client:
        assert [offset for offset, _ in fetch_all(client, "bad")] == list(range(RECORDS))


def test_log_verify_runs_beside_the_broker_and_repair_needs_it_stopped(
    broker: Serving, capfd: pytest.CaptureFixture[str]
) -> None:
    data = broker.directory / "data"
    assert main(["log", "verify", str(data)]) == 0
    _, second, *_ = segments(broker)
    flip(second, 70)
    assert main(["log", "verify", str(data)]) == 1
    assert "is in use by another broker" not in capfd.readouterr().err
    assert main(["log", "verify", str(data), "--repair"]) == 1
    assert "is in use by another broker" in capfd.readouterr().err
    assert broker.stop() == 0
    assert main(["log", "verify", str(data), "--repair"]) == 0
    broker.start()
    with RawClient(broker.port) as client:
        assert [offset for offset, _ in fetch_all(client, "bad")] == list(range(int(second.stem)))
        assert produced(client, "bad", b"goes on") == int(second.stem)
    assert broker.stop() == 0
    assert main(["log", "verify", str(data)]) == 0


def in_detail(client: RawClient, offset: int) -> tuple[ErrorCode, list[int]]:
    """Return the error, and the offsets of batches from `offset` on whose checksums are right."""
    request = fetch_request("bad", offset, bytes_max=3 * SIZE)
    (part,) = client.request(request, FETCH, FetchResponse).responses[0].partitions
    batches = iter_batches(part.records or b"")  # type: ignore[arg-type]  # What was received is bytes.
    return ErrorCode(part.error_code), [one.base_offset for one in batches if one.is_intact]


def test_known_damage_is_not_served(broker: Serving) -> None:
    """As in Apache Kafka, the broker sends unread data; a request that parses a batch finds the damage."""
    damaged, times = 3, [1_700_000_000_000 + number for number in range(RECORDS)]
    with RawClient(broker.port) as client:
        assert delete(client, "bad") == ErrorCode.NONE
        created(client, "bad")
        for number in range(RECORDS):
            produced(client, "bad", b"%d" % (number % 10) * SIZE, timestamp_ms=times[number])
        size = segments(broker)[0].stat().st_size // 10
        flip(segments(broker)[0], size * damaged + 61)  # The length of its record.
        assert in_detail(client, damaged) == (ErrorCode.NONE, [damaged + 1])
        part = ListOffsetsPartition(partition_index=0, timestamp=times[damaged])
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="bad", partitions=[part])])
        for _ in range(2):
            (topic,) = client.request(request, 5, ListOffsetsResponse).topics
            assert ErrorCode(topic.partitions[0].error_code) == ErrorCode.CORRUPT_MESSAGE
            assert in_detail(client, damaged) == (ErrorCode.CORRUPT_MESSAGE, [])
        assert in_detail(client, damaged - 1) == (ErrorCode.NONE, [damaged - 1]), "it ends before the damage"
        assert in_detail(client, damaged + 1) == (ErrorCode.NONE, [damaged + 1, damaged + 2])
        assert produced(client, "bad", b"goes on") == RECORDS
        assert fetch(client, "bad", RECORDS) == (ErrorCode.NONE, [(RECORDS, b"goes on")])
        assert fetch_all(client, "good") == [(0, b"before")]
    assert broker.errors().count("the log is damaged at byte") == 1


def test_a_fetch_at_damaged_data_gets_an_error(broker: Serving) -> None:
    """An impossible length keeps the broker itself from reading past it."""
    damaged = 3
    size = segments(broker)[0].stat().st_size // 10
    assert broker.stop() == 0  # So that nothing of the log is remembered, or looked at.
    flip(segments(broker)[0], size * damaged + 8)
    broker.start()
    with RawClient(broker.port) as client:
        errors = {in_detail(client, offset)[0] for offset in range(RECORDS)}
        assert errors <= {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE}
        assert in_detail(client, damaged)[0] in errors
        assert in_detail(client, damaged + 1) == (ErrorCode.NONE, [damaged + 1, damaged + 2])
        assert produced(client, "bad", b"goes on") == RECORDS
