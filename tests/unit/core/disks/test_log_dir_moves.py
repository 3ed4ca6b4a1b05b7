"""Moves of a partition to another data directory: all state moves too, and a stop at any point loses nothing."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from random import Random

import pytest
from simdisk import SimDisk

from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, LeaderEpoch, Offset, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import Changed, Effect
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.disks.flushes import Sync
from odradek.core.disks.log_dir_moves import Copying
from odradek.core.kernel.chores import Chores
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView, Endpoint, PartitionInfo, TopicInfo
from odradek.core.kernel.entropy import Entropy
from odradek.core.kernel.moment import Moment
from odradek.core.partition.storage import Storage
from odradek.core.replication.follower_log import truncate_log
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import DAMAGES
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_below_start
from odradek.log.segment.checkpoints import read_damages
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode
from support.logs import T0
from support.own_controller import OneController

pytestmark = pytest.mark.slow

US = BrokerId(1)
T = TopicPartition(TopicName("t"), 0)
ID = Uuid(bytes(range(16)))
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=1000)
TOPIC = TopicInfo(T.topic, ID, (PartitionInfo(US, LeaderEpoch(4), (US,), (US,)),))
NOW = Moment(T0, 1_000_000)
RECORDS = 40
NUMBERS = count()
Records = dict[int, bytes]


class Server:
    """A broker with two data directories on one simulated disk; effects are executed one by one."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        directories = [
            open_log_directory(disk, path, T0, broker_id=US, cluster_id="c", config_of=lambda _: SMALL)
            for path in ("/a", "/b")
        ]
        view = ClusterView("c", brokers={US: BrokerInfo(US, (Endpoint("PLAINTEXT", "h", 1),))})
        entropy = Entropy(lambda: next(NUMBERS), lambda: ID)
        self.storage = Storage(directories)
        self.broker = Broker(US, view, self.storage, BrokerConfigs.parse({}), entropy)
        self.controller = OneController(self.broker, 1)
        self.broker.start(NOW)
        whole(self.controller.begin([TOPIC], NOW))
        self.log.config = SMALL
        self.pending: list[Effect] = []

    @property
    def log(self) -> Log:
        return self.broker.partitions[T].log

    @property
    def where(self) -> str:
        return self.log.directory

    def move(self, path: str) -> None:
        target = next(one for one in self.storage if one.path == path)
        self.broker.moves.alter(T, target, NOW)

    def step(self) -> bool:
        """Execute one effect; return False if there is none."""
        self.pending += self.broker.take_effects()
        if not self.pending:
            return False
        effect = self.pending.pop(0)
        if isinstance(effect, Copying | Sync):
            self.broker.on_event(effect.run(), NOW)
        elif isinstance(effect, Chores):
            effect.run()
        else:
            raise AssertionError(effect)
        return True

    def finish(self) -> None:
        while self.step():
            pass

    def run_housekeeping(self, steady: int = 2_000_000) -> None:
        for _ in self.broker.run_housekeeping(Moment(T0, steady)):
            self.finish()

    def produce(self, value: bytes) -> Offset:
        raw = encode_batch([(None, value, (), T0)])
        append = self.broker.stage(
            self.broker.partitions[T].leader(), Batch.checked(memoryview(raw)), NOW, all_replicas=True
        )
        self.broker.commit(NOW)
        return append.base_offset


def create_server() -> Server:
    """Return a log of several segments and epochs, with producers, transactions and a start amid a segment."""
    server = Server(SimDisk())
    log = server.log
    for number in range(RECORDS):
        producer = number % 4 - 1 if number else 9  # No record of producer 9 is retained.
        raw = encode_batch(
            [(None, b"%d" % number, (), T0 + number)],
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=number // 4 if producer >= 0 else -1,
            is_transactional=producer == 2,
        )
        log.append(Batch.checked(memoryview(raw)), LeaderEpoch(number // 10), T0)
        if producer == 2 and number % 8 == 7:
            marker = EndMarker(number % 16 == 15, 0)
            log.append(end_marker_batch(marker, 2, 0, T0), LeaderEpoch(number // 10), T0)
    advance_start(log, Offset(17))
    delete_below_start(log, T0)
    assert log.segments[0].base_offset > 0 and len(log.segments) > 3
    flush_now(log)
    log.epochs.assign(LeaderEpoch(4), log.end_offset)  # The epoch has no record yet.
    log.producers.high_watermark_advanced(log.end_offset)
    server.broker.partitions[T].positions.advance_high_watermark(log.end_offset)
    server.broker.partitions[T].positions.advance_durable_end(log.end_offset)
    for directory in server.storage:
        directory.checkpoints.write_now()
    server.disk.sync_directory("")
    server.disk.sync_directory("/a")
    return server


def contents(log: Log) -> Records:
    found: Records = {}
    offset = log.start_offset
    while offset < log.end_offset:
        for batch in iter_batches(log.read(offset, 500, log.end_offset).read()):
            found |= {record.offset: record.value or b"" for record in decode(batch) if record.offset >= offset}
            offset = batch.next_offset
    return found


def state_of(log: Log) -> object:
    """Return all state of a log except for its segment boundaries."""
    aborted = {
        one for segment in log.segments for one in segment.transactions.overlapping(Offset(0), log.end_offset)[0]
    }
    return (
        log.start_offset,
        log.end_offset,
        log.epochs.entries,
        log.topic_id,
        sorted((one.id, one.epoch, one.batches[-1:], one.first_offset) for one in log.producers),
        log.producers.first_unstable,
        aborted,
    )


def folders(disk: SimDisk, path: str) -> list[str]:
    return sorted(entry.name.partition(".")[0] for entry in disk.entries(path) if entry.size < 0)


def test_move_keeps_all_state_of_the_log() -> None:
    server = create_server()
    before, records = state_of(server.log), contents(server.log)
    server.move("/b")
    server.finish()
    assert server.where == "/b/t-0"
    assert state_of(server.log) == before, "epochs without records, producers and transactions too"
    assert contents(server.log) == records
    server.produce(b"after")
    server.finish()
    assert contents(server.log)[server.log.end_offset - 1] == b"after"
    server.run_housekeeping()
    again = Server(server.disk.kill())
    assert again.where == "/b/t-0"
    assert state_of(again.log) != before and contents(again.log) | {0: b""} == contents(server.log) | {0: b""}
    server.broker.stop(NOW)


def test_producers_survive_a_crash_after_the_move() -> None:
    """The first snapshot is moved too, so producers without retained records are kept."""
    server = create_server()
    before = state_of(server.log)
    server.move("/b")
    server.finish()
    again = Server(server.disk.kill())
    again_known = state_of(again.log)
    assert isinstance(before, tuple) and isinstance(again_known, tuple)
    assert again_known[4:] == before[4:]


def test_records_are_written_and_read_during_a_move() -> None:
    server = create_server()
    records = contents(server.log)
    server.move("/b")
    number = 0
    while server.where != "/b/t-0":
        records[server.produce(b"meanwhile %d" % number)] = b"meanwhile %d" % number
        assert contents(server.log) == records
        assert server.step()
        number += 1
        assert number < 1_000
    server.finish()
    partition = server.broker.partitions[T]
    assert partition.positions.high_watermark == partition.positions.durable_end == server.log.end_offset
    assert contents(server.log) == records


def test_move_back_to_the_current_directory_cancels_the_move() -> None:
    server = create_server()
    records = contents(server.log)
    server.move("/b")
    assert server.step()
    server.move("/a")  # The current directory: this cancels the move.
    server.finish()
    server.run_housekeeping()
    assert server.where == "/a/t-0"
    assert folders(server.disk, "/b") == []
    for path in ("/b", "/a", "/b"):
        server.move(path)
        server.finish()
        assert server.where == f"{path}/t-0" and contents(server.log) == records


def test_move_is_throttled_by_its_configured_rate() -> None:
    server = create_server()
    server.broker.configs.replace_values(
        BrokerConfigs.parse({"replica.alter.log.dirs.io.max.bytes.per.second": "1000"})
    )
    size = server.log.size
    server.move("/b")
    server.finish()
    steady = NOW.steady
    while server.where != "/b/t-0":
        due = server.broker.next_due()
        assert due is not None
        steady = max(steady, due)
        server.broker.tick(Moment(T0, steady))
        server.finish()
    assert steady - NOW.steady >= size - 2_000, "a millisecond for each byte, at 1000 bytes a second"


def cut_and_replace(server: Server, offset: int, count: int) -> Records:
    """As a follower of another leader: cuts the log and appends other records; returns what is left."""
    partition = server.broker.partitions[T]
    partition.follow(partition.info._replace(leader=BrokerId(2)))
    truncate_log(partition, Offset(offset), T0)
    for number in range(count):
        raw = encode_batch([(None, b"other %d" % number, (), T0)])
        partition.log.append(Batch.checked(memoryview(raw)), LeaderEpoch(5), T0)
    return contents(partition.log)


def test_records_replaced_after_the_copy_are_copied_again() -> None:
    """The log is longer than the copy again, so no offset shows it."""
    server = create_server()
    server.move("/b")
    assert server.step()
    (copying,) = server.broker.take_effects()
    assert isinstance(copying, Copying)
    copied = copying.run()
    records = cut_and_replace(server, 30, 2 * RECORDS)
    server.broker.on_event(copied, NOW)
    server.finish()
    server.run_housekeeping()
    assert server.where == "/b/t-0"
    assert contents(server.log) == records


@pytest.mark.parametrize("count", [0, RECORDS])
def test_log_truncated_while_a_thread_copies_it_stays_online(count: int) -> None:
    """The thread finds the file too short, or other bytes in it: neither is the disk's fault."""
    server = create_server()
    server.move("/b")
    assert server.step()
    (copying,) = server.broker.take_effects()
    assert isinstance(copying, Copying)
    records = cut_and_replace(server, 20, count)
    server.broker.on_event(copying.run(), NOW)
    server.finish()
    server.run_housekeeping()
    partition = server.broker.partitions[T]
    assert partition.is_online and not partition.log.damaged_places
    assert server.where == "/b/t-0" and contents(server.log) == records


def test_topic_can_be_deleted_during_a_move() -> None:
    server = create_server()
    server.move("/b")
    assert server.step()
    assert server.step()
    whole(server.controller.apply_change(Changed(0, {T.topic: None}), NOW))
    server.finish()
    server.run_housekeeping()
    assert folders(server.disk, "/b") == []


@pytest.mark.parametrize(
    ("position", "byte"),
    [(70, b"\xff"), (11, b"\x01"), (10, b"\x01"), (8, b"\xff"), (0, b"\x80"), (7, b"\x00"), (3, b"\x01")],
    ids=["checksum", "too short", "too long", "below 0", "offset below 0", "offset too low", "offset too high"],
)
def test_damage_is_not_copied(position: int, byte: bytes) -> None:
    """The damaged batch is no longer served at the source either, and the damage is reported."""
    server = create_server()
    segment = server.log.segments[0]
    file, begin = server.disk.open(segment.path), segment.locate(server.log.start_offset)
    assert begin is not None
    file.write(begin + position, byte)
    server.move("/b")
    server.finish()
    server.run_housekeeping()
    assert server.where == "/a/t-0"
    assert folders(server.disk, "/b") == []
    with pytest.raises(Refused) as refused:
        server.broker.partitions[T].read(server.log.start_offset, 1, at_least_one=True)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    (known,) = read_damages(server.disk, f"/a/{DAMAGES}")
    assert (known.partition, known.file, known.position) == (T, segment.name, begin)


def test_move_ends_at_a_last_batch_with_a_wrong_offset() -> None:
    """Its copy would end behind the log, be dropped as the copy of other records, and begin again without end."""
    server = create_server()
    segment = server.log.active
    position = segment.locate(Offset(server.log.end_offset - 1))
    assert position is not None
    server.disk.open(segment.path).write(position, b"\x7f")
    server.move("/b")
    for _ in range(20):
        server.step()
    assert not server.step()
    server.run_housekeeping()
    assert (server.where, folders(server.disk, "/b")) == ("/a/t-0", [])
    (known,) = read_damages(server.disk, f"/a/{DAMAGES}")
    assert (known.partition, known.file, known.position) == (T, segment.name, position)


@pytest.mark.parametrize("power_fails", [False, True])
def test_stop_at_any_disk_call_keeps_one_complete_log(power_fails: bool) -> None:
    """After a kill or a power failure at any call, one log exists with all acknowledged records."""
    number, ended = 0, False
    while not ended:
        server = create_server()
        records = contents(server.log)
        server.disk.fail_from(number)
        with suppress(DiskFailed, Refused):
            server.move("/b")
            server.finish()
        ended = not server.disk.failures
        server.disk.mend()
        for seed in range(4 if power_fails else 1):
            survivor = server.disk.crash(Random(seed)) if power_fails else server.disk.kill()
            again = Server(survivor)
            assert again.broker.partitions[T].is_online, number
            assert contents(again.log) == records, number
            again.finish()
            again.run_housekeeping()
            assert contents(again.log) == records, number
            names = [entry.name for path in ("/a", "/b") for entry in survivor.entries(path)]
            assert names.count("t-0") == 1
        number += 1
    assert number > 30


def test_failing_disk_call_ends_the_move_and_keeps_the_partition(caplog: pytest.LogCaptureFixture) -> None:
    """The move succeeds, or is cancelled with a log line; the partition is served in any case.

    If a file of the log itself cannot be read, the log goes offline, as for any other reader.
    """
    number = 0
    while True:
        server = create_server()
        records = contents(server.log)
        caplog.clear()
        server.disk.fail_call(number)
        server.move("/b")
        server.finish()
        if not server.disk.failures:
            break
        partition = server.broker.partitions[T]
        if partition.is_online:
            assert contents(partition.log) == records
            offset = server.produce(b"after")
            server.finish()
            assert contents(partition.log)[offset] == b"after"
            assert partition.log.directory == "/b/t-0" or "failed to move t-0 to /b" in caplog.text
        else:
            assert "injected: '/a/t-0" in caplog.text
        again = Server(server.disk.kill())
        assert contents(again.log).items() >= records.items()
        number += 1


def test_interrupted_copy_restarts_after_a_stop() -> None:
    server = create_server()
    records = contents(server.log)
    server.move("/b")
    for _ in range(3):
        assert server.step()
    assert folders(server.disk, "/b") == ["t-0"]
    again = Server(server.disk.kill())
    again.finish()
    assert again.where == "/b/t-0" and contents(again.log) == records
    again.run_housekeeping(9_000_000)
    assert folders(again.disk, "/b") == ["t-0"]
