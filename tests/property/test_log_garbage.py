"""Data directories with arbitrary bytes in their files: they are opened, or refused with a reason."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from simdisk import SimDisk

from odradek.base.errors import Refused
from odradek.base.units import BrokerId, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.files.meta_properties import WrongDirectory
from odradek.log.log.durability import close_log
from odradek.log.log.log import Log
from odradek.log.log.retention import delete_old_segments
from odradek.log.log.timestamp_search import lookup_timestamp
from odradek.log.log.truncation import truncate_to
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch
from support.logs import T0, put

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
STEMS = [f"{number:020d}" for number in (0, 7)]
PARTITION_FILES = [
    *(
        stem + suffix
        for stem in STEMS
        for suffix in (".log", ".index", ".timeindex", ".txnindex", ".log.swap", ".snapshot")
    ),
    "leader-epoch-checkpoint",
    "partition.metadata",
]
TOP_FILES = [
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    ".kafka_cleanshutdown",
]
TEXT = st.text("0123456789 \n-:=t", max_size=40).map(str.encode)


def good_log(disk: SimDisk) -> None:
    disk.make_directory("/data/t-0")
    log = Log.open(disk, "/data/t-0", CONFIG, T0)
    for number in range(9):
        put(log, b"value %d" % number, at=T0 + number, epoch=number // 4)
        if number % 3 == 1:
            transact(log, number)
    close_log(log, T0)


def transact(log: Log, number: int) -> None:
    producer, epoch = ProducerId(number), ProducerEpoch(0)
    raw = encode_batch(
        [(None, b"v", (), T0)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )
    for one in (Batch.checked(memoryview(raw)), end_marker_batch(EndMarker(False, 0), producer, epoch, T0)):
        log.append(one, log.epochs.latest, T0)


@settings(deadline=None, max_examples=200)
@given(
    junk=st.dictionaries(st.sampled_from(PARTITION_FILES), st.one_of(st.binary(max_size=200), TEXT), max_size=4),
    top=st.dictionaries(st.sampled_from(TOP_FILES), st.one_of(st.binary(max_size=60), TEXT), max_size=3),
    patched=st.one_of(
        st.none(), st.tuples(st.sampled_from(STEMS), st.integers(0, 400), st.binary(min_size=1, max_size=9))
    ),
    clean=st.booleans(),
)
def test_garbage_is_opened_or_refused(
    junk: dict[str, bytes], top: dict[str, bytes], patched: tuple[str, int, bytes] | None, clean: bool
) -> None:
    disk = SimDisk()
    good_log(disk)
    for name, content in junk.items():
        disk.create(f"/data/t-0/{name}").write(0, content)
    for name, content in (({".kafka_cleanshutdown": b""} if clean else {}) | top).items():
        disk.create(f"/data/{name}").write(0, content)
    if patched is not None:
        patch(disk, *patched)
    try:
        directory = open_log_directory(
            disk, "/data", T0, broker_id=BrokerId(1), cluster_id="c", config_of=lambda _: CONFIG
        )
    except (WrongDirectory, DiskFailed):
        return
    for log in directory.logs.values():
        use(log)
    assert directory.logs or directory.offline
    directory.close(T0)


def patch(disk: SimDisk, stem: str, position: int, content: bytes) -> None:
    """Overwrite bytes of the file, be they valid or junk."""
    try:
        disk.open(f"/data/t-0/{stem}.log").write(position, content)
    except DiskFailed:
        disk.create(f"/data/t-0/{stem}.log").write(position, content)


def use(log: Log) -> None:
    for act in (
        lambda: lookup_timestamp(log, TimestampMs(T0 + 3)),
        lambda: lookup_timestamp(log, None),
        lambda: put(log, b"after", epoch=9),
        lambda: truncate_to(log, Offset(max(log.end_offset - 2, 0)), T0),
        lambda: delete_old_segments(log, TimestampMs(T0 + 10**12), log.end_offset),
    ):
        for offset in range(log.start_offset, min(log.end_offset, log.start_offset + 20)):
            try:
                records = log.read(Offset(offset), 300, log.end_offset)
                records.read()
                log.aborted(Offset(offset), records, log.end_offset)
            except (Refused, DiskFailed):
                break
        try:
            act()
        except (Refused, DiskFailed):
            continue
