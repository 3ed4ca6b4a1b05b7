"""The Delta table: atomic commits of data and offsets, a single loader, and clear errors for unsuitable folders."""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType

from odradek.app.main import main
from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.spark.delta_lake import Fenced, Lake
from odradek.spark.lake_location import Place
from odradek.spark.lake_reasons import BadLake
from odradek.spark.lake_table import SCHEMA, source_text, vacuum
from odradek.spark.parquet import ParquetFiles
from odradek.spark.source_options import Subscribe, SubscribePattern

T = Subscribe(("t",))
AT = TopicPartition(TopicName("t"), 0)
ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))


def open_lake(folder, selection=T):
    return Lake.open(Place.of(folder), selection)


def folder_of(lake):
    return lake.place.folder


def batch(first, count, topic="t", partition=0):
    stamps = [datetime.fromtimestamp(1_600_000_000 + n, UTC) for n in range(first, first + count)]
    columns = {
        "key": [None] * count,
        "value": [b"v%d" % n for n in range(first, first + count)],
        "topic": [topic] * count,
        "partition": [partition] * count,
        "offset": list(range(first, first + count)),
        "timestamp": stamps,
        "timestampType": [0] * count,
        "headers": [None] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def write_table(folder, first, count, **how):
    with ParquetFiles(Place.of(folder), "part", **how) as files:
        for start in range(first, first + count, 10):
            files.write(batch(start, min(10, first + count - start)))
    return files.files()


def load(lake, first, count):
    lake.commit(write_table(folder_of(lake), first, count), {AT: first}, {AT: first + count}, {"t": ID})


def offsets(path):
    return sorted(DeltaTable(path).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def test_commit_adds_rows_and_advances_offsets(tmp_path):
    lake = open_lake(tmp_path / "lake")
    assert (lake.version, lake.batch, lake.next_offset(AT)) == (0, 0, None)
    load(lake, 5, 20)
    load(lake, 25, 5)
    for seen in (lake, open_lake(tmp_path / "lake")):
        assert (seen.version, seen.batch, seen.next_offset(AT), seen.rows()) == (2, 2, 30, 25)
    assert offsets(folder_of(lake)) == list(range(5, 30))
    newest = DeltaTable(folder_of(lake)).history(1)[0]
    assert (newest["odradek.start"], newest["odradek.end"]) == ('{"t":{"0":25}}', '{"t":{"0":30}}')


def test_offsets_survive_checkpoints_and_log_cleanup(tmp_path):
    lake = open_lake(tmp_path / "lake")
    load(lake, 0, 10)
    table = DeltaTable(folder_of(lake))
    table.create_checkpoint()
    (folder_of(lake) / "_delta_log" / f"{0:020d}.json").unlink()
    reopened = open_lake(folder_of(lake))
    assert (reopened.next_offset(AT), reopened.is_same_topic("t", OTHER_ID)) == (10, False)
    load(reopened, 10, 10)
    assert offsets(folder_of(lake)) == list(range(20))


def test_slower_of_two_loaders_is_fenced(tmp_path):
    first, second = open_lake(tmp_path / "lake"), open_lake(tmp_path / "lake")
    load(first, 0, 10)
    with pytest.raises(Fenced, match="No records were loaded twice"):
        load(second, 0, 10)
    assert offsets(folder_of(first)) == list(range(10))
    second.refresh()
    assert second.next_offset(AT) == 10
    load(second, 10, 10)
    with pytest.raises(Fenced):
        load(first, 10, 10)
    assert offsets(folder_of(first)) == list(range(20))


def test_concurrent_optimize_does_not_fence_the_loader(tmp_path):
    lake = open_lake(tmp_path / "lake")
    load(lake, 0, 10)
    load(lake, 10, 10)
    DeltaTable(folder_of(lake)).optimize.compact()
    load(lake, 20, 10)
    assert open_lake(folder_of(lake)).compact() == 1
    assert offsets(folder_of(lake)) == list(range(30))


OTHERS_CHANGES = {
    "delete": lambda table: table.delete("offset < 5"),
    "update": lambda table: table.update(updates={"value": "'x'"}, predicate="offset < 5"),
    "add column": lambda table: table.alter.add_columns([Field("extra", PrimitiveType("string"))]),
    "properties": lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
    "optimize": lambda table: table.optimize.compact(),
    "vacuum": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    "append": lambda table: write_deltalake(table, pa.Table.from_batches([batch(900, 10)]), mode="append"),
}


@pytest.mark.parametrize("change", OTHERS_CHANGES)
def test_changes_by_other_writers_do_not_fence_the_loader(tmp_path, change):
    lake = open_lake(tmp_path / "lake")
    load(lake, 0, 10)
    load(lake, 10, 10)
    OTHERS_CHANGES[change](DeltaTable(folder_of(lake)))
    load(lake, 20, 10)
    load(lake, 30, 10)
    assert [offset for offset in offsets(folder_of(lake)) if 20 <= offset < 900] == list(range(20, 40))
    assert (lake.next_offset(AT), lake.batch) == (40, 4)
    assert (open_lake(folder_of(lake)).next_offset(AT), open_lake(folder_of(lake)).batch) == (40, 4)


def test_table_with_unsupported_constraints_is_refused(tmp_path):
    lake = open_lake(tmp_path / "lake")
    load(lake, 0, 10)
    DeltaTable(folder_of(lake)).alter.add_constraint({"small": "offset < 100"})
    with pytest.raises(BadLake, match="constraint"):
        load(lake, 10, 10)
    with pytest.raises(BadLake, match="constraint"):
        open_lake(folder_of(lake))
    DeltaTable(folder_of(lake)).alter.drop_constraint("small")
    load(open_lake(folder_of(lake)), 10, 10)
    assert offsets(folder_of(lake)) == list(range(20))


def test_commit_with_a_lost_response_is_found_in_the_table(tmp_path):
    """The table shows that the commit succeeded, and that no other loader wrote."""
    lake = open_lake(tmp_path / "lake")
    load(lake, 0, 10)
    table = lake._table
    lake._table = Forgetful(table)
    load(lake, 10, 10)
    lake._table = table
    load(lake, 20, 10)
    assert offsets(folder_of(lake)) == list(range(30))
    assert (lake.version, lake.batch) == (3, 3)


class Forgetful:
    """A table whose store executes each commit, but fails to respond."""

    def __init__(self, table):
        self._table = table

    def __getattr__(self, name):
        return getattr(self._table, name)

    def create_write_transaction(self, *arguments, **options):
        self._table.create_write_transaction(*arguments, **options)
        raise OSError("Generic S3 error: operation timed out")


def test_recreated_topic_discards_the_offsets_of_all_partitions(tmp_path):
    lake = open_lake(tmp_path / "lake")
    parts = [TopicPartition(TopicName("t"), number) for number in range(3)]
    lake.commit([], dict.fromkeys(parts, 0), dict.fromkeys(parts, 7), {"t": ID})
    lake.commit([], {parts[0]: 0}, {parts[0]: 2}, {"t": OTHER_ID})
    for seen in (lake, open_lake(tmp_path / "lake")):
        assert [seen.next_offset(at) for at in parts] == [2, None, None]
        assert seen.is_same_topic("t", OTHER_ID)


def test_vacuum_removes_old_unused_files(tmp_path):
    lake = open_lake(tmp_path / "lake")
    load(lake, 0, 10)
    (lost,) = write_table(folder_of(lake), 10, 10)
    (running,) = write_table(folder_of(lake), 10, 10)
    load(lake, 10, 10)
    week_ago = time.time() - 8 * 86_400
    os.utime(folder_of(lake) / lost.name, (week_ago, week_ago))
    for execute in (False, True):
        assert vacuum(lake.place, 168, execute=execute) == [lost.name]
    assert vacuum(lake.place, 168, execute=True) == []
    assert (folder_of(lake) / running.name).exists()
    load(lake, 20, 10)
    assert offsets(folder_of(lake)) == list(range(30))
    write_deltalake(tmp_path / "other", pa.table({"x": [1]}))
    for name, message in (("nothing", "does not exist"), ("other", "did not create")):
        with pytest.raises(BadLake, match=message):
            vacuum(Place.of(tmp_path / name), 168, execute=True)


@pytest.fixture
def synced(monkeypatch):
    """Record the names of synced files and folders, in order."""
    names, sync = [], os.fsync

    def noted(descriptor):
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return names


def test_commit_syncs_data_and_log_to_disk(tmp_path, synced):
    lake = open_lake(tmp_path / "lake")
    assert f"{0:020d}.json" in synced
    synced.clear()
    load(lake, 0, 10)
    data, *rest = synced
    assert data.endswith(".parquet")
    assert rest == ["lake", f"{1:020d}.json", "_delta_log"], "names, then the version, then its name"
    others = DeltaTable(folder_of(lake))
    others.alter.set_table_description("by somebody who syncs nothing")
    others.create_checkpoint()
    synced.clear()
    lake.refresh()
    assert synced == [f"{2:020d}.json", f"{2:020d}.checkpoint.parquet", "_last_checkpoint", "_delta_log"]
    synced.clear()
    load(lake, 10, 10)
    lake.compact()
    (merged,) = (Path(uri).name for uri in DeltaTable(folder_of(lake)).file_uris())
    assert merged in synced
    synced.clear()
    open_lake(folder_of(lake))
    assert [f"{version:020d}.json" for version in range(5)] == [name for name in synced if name.endswith(".json")]


def test_vacuum_command_lists_files_and_removes_them_with_execute(tmp_path, capsys):
    lake = open_lake(tmp_path / "lake")
    load(lake, 0, 10)
    (lost,) = write_table(folder_of(lake), 10, 10)
    day_ago = time.time() - 86_400
    os.utime(folder_of(lake) / lost.name, (day_ago, day_ago))
    command = ["lake", "vacuum", str(folder_of(lake))]
    for options, out, err in (
        ((), "", "No unused files found.\n"),
        (("--older-than-hours", "12"), f"{lost.name}\n", "1 file can be removed. Run again with --execute.\n"),
        (("--older-than-hours", "12", "--execute"), f"{lost.name}\n", "1 file removed.\n"),
    ):
        assert main([*command, *options]) == 0
        assert capsys.readouterr() == (out, err)
    assert not (folder_of(lake) / lost.name).exists()
    for place, status, message in (
        ("s3:x", 2, "is not supported: use a local directory or s3://"),
        (str(tmp_path / "no"), 1, "does not exist"),
    ):
        assert main(["lake", "vacuum", place]) == status
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_files_of_a_failed_attempt_are_not_in_the_table(tmp_path):
    lake = open_lake(tmp_path / "lake")
    write_table(folder_of(lake), 0, 10)
    load(lake, 0, 10)
    assert offsets(folder_of(lake)) == list(range(10))
    assert len(list(folder_of(lake).glob("*.parquet"))) == 2


def test_unfinished_file_is_removed(tmp_path):
    with pytest.raises(ZeroDivisionError), ParquetFiles(Place.of(tmp_path), "part") as files:
        files.write(batch(0, 5))
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_files_are_limited_in_size_and_have_statistics(tmp_path):
    assert [file.rows for file in write_table(tmp_path, 0, 25, file_bytes=1)] == [10, 10, 5]
    files = write_table(tmp_path, 100, 30)
    stats = json.loads(files[0].stats)
    assert (stats["numRecords"], files[0].rows) == (30, 30)
    assert stats["minValues"] == {
        "topic": "t", "partition": 0, "offset": 100, "timestamp": "2020-09-13T12:28:20.000Z",
    }  # fmt: skip
    assert stats["maxValues"]["offset"] == 129
    assert (tmp_path / files[0].name).stat().st_size == files[0].size


def test_timestamps_beyond_pythons_range_have_no_statistics(tmp_path):
    far = batch(0, 3).set_column(5, SCHEMA.field(5), pa.array([0, 1, 2**63 - 1], pa.timestamp("us", tz="UTC")))
    with ParquetFiles(Place.of(tmp_path), "part") as files:
        files.write(far)
    stats = json.loads(files.files()[0].stats)
    assert stats["maxValues"] == {"topic": "t", "partition": 0, "offset": 2}


def test_recreated_topic_is_detected_by_its_id(tmp_path):
    lake = open_lake(tmp_path / "lake")
    assert lake.is_same_topic("t", ID)
    load(lake, 0, 10)
    assert lake.is_same_topic("t", ID)
    assert lake.is_same_topic("t", ZERO_UUID), "an old broker has no ids"
    assert not lake.is_same_topic("t", OTHER_ID)


def test_table_accepts_only_its_original_topics(tmp_path):
    open_lake(tmp_path / "lake", Subscribe(("b", "a")))
    open_lake(tmp_path / "lake", Subscribe(("a", "b")))
    for other in (T, SubscribePattern("a|b")):
        with pytest.raises(BadLake, match="is loaded from"):
            open_lake(tmp_path / "lake", other)
    assert source_text(SubscribePattern("a|b")) == '{"pattern": "a|b"}'


def test_unsuitable_folders_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "holiday.jpg").touch()
    (tmp_path / "file").touch()
    write_deltalake(tmp_path / "table", pa.table({"x": [1]}))
    (tmp_path / "torn" / "_delta_log").mkdir(parents=True)
    (tmp_path / "torn" / "_delta_log" / "00000000000000000001.json").touch()
    for name, message in (
        ("full", "not a Delta table"),
        ("file", "is a file"),
        ("table", "did not create"),
        ("torn", "damaged|Failed to open"),
    ):
        with pytest.raises(BadLake, match=message) as refused:
            open_lake(tmp_path / name)
        assert "\n" not in str(refused.value)
    with pytest.raises(BadLake, match="Failed to open"):
        open_lake(tmp_path / "file" / "below")


def test_table_of_a_loader_killed_during_creation_is_created(tmp_path):
    (tmp_path / "lake" / "_delta_log").mkdir(parents=True)
    assert open_lake(tmp_path / "lake").version == 0
