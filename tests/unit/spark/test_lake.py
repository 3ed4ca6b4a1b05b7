"""The table: data and offsets in one commit, one loader at a time, and clear words for a folder that will not do."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.spark.lake import SCHEMA, BadLake, Fenced, Lake, source_text
from odradek.spark.options import Subscribe, SubscribePattern
from odradek.spark.parquet import ParquetFiles

T = Subscribe(("t",))
AT = TopicPartition(TopicName("t"), 0)
ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))


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


def written(folder, first, count, **how):
    with ParquetFiles(folder, "part", **how) as files:
        for start in range(first, first + count, 10):
            files.write(batch(start, min(10, first + count - start)))
    return files.files()


def load(lake, first, count):
    lake.commit(written(lake.path, first, count), {AT: first}, {AT: first + count}, {"t": ID})


def offsets(path):
    return sorted(DeltaTable(path).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def test_a_commit_moves_rows_and_offsets(tmp_path):
    lake = Lake.open(tmp_path / "lake", T)
    assert (lake.version, lake.batch, lake.next_offset(AT)) == (0, 0, None)
    load(lake, 5, 20)
    load(lake, 25, 5)
    for seen in (lake, Lake.open(tmp_path / "lake", T)):
        assert (seen.version, seen.batch, seen.next_offset(AT), seen.rows()) == (2, 2, 30, 25)
    assert offsets(lake.path) == list(range(5, 30))
    newest = DeltaTable(lake.path).history(1)[0]
    assert (newest["odradek.start"], newest["odradek.end"]) == ('{"t":{"0":25}}', '{"t":{"0":30}}')


def test_offsets_outlive_checkpoints_and_log_cleanup(tmp_path):
    lake = Lake.open(tmp_path / "lake", T)
    load(lake, 0, 10)
    table = DeltaTable(lake.path)
    table.create_checkpoint()
    (lake.path / "_delta_log" / f"{0:020d}.json").unlink()
    reopened = Lake.open(lake.path, T)
    assert (reopened.next_offset(AT), reopened.is_same_topic("t", OTHER_ID)) == (10, False)
    load(reopened, 10, 10)
    assert offsets(lake.path) == list(range(20))


def test_the_slower_of_two_loaders_is_refused(tmp_path):
    first, second = Lake.open(tmp_path / "lake", T), Lake.open(tmp_path / "lake", T)
    load(first, 0, 10)
    with pytest.raises(Fenced, match="nothing was loaded twice"):
        load(second, 0, 10)
    assert offsets(first.path) == list(range(10))
    second.refresh()
    assert second.next_offset(AT) == 10
    load(second, 10, 10)
    with pytest.raises(Fenced):
        load(first, 10, 10)
    assert offsets(first.path) == list(range(20))


def test_optimize_by_somebody_else_does_not_fence(tmp_path):
    lake = Lake.open(tmp_path / "lake", T)
    load(lake, 0, 10)
    load(lake, 10, 10)
    DeltaTable(lake.path).optimize.compact()
    load(lake, 20, 10)
    assert Lake.open(lake.path, T).compact() == 1
    assert offsets(lake.path) == list(range(30))


def test_files_of_a_lost_attempt_are_not_in_the_table(tmp_path):
    lake = Lake.open(tmp_path / "lake", T)
    written(lake.path, 0, 10)
    load(lake, 0, 10)
    assert offsets(lake.path) == list(range(10))
    assert len(list(lake.path.glob("*.parquet"))) == 2


def test_an_unfinished_file_is_taken_away(tmp_path):
    with pytest.raises(ZeroDivisionError), ParquetFiles(tmp_path, "part") as files:
        files.write(batch(0, 5))
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_files_are_cut_to_size_and_described(tmp_path):
    assert [file.rows for file in written(tmp_path, 0, 25, file_bytes=1)] == [10, 10, 5]
    files = written(tmp_path, 100, 30)
    stats = json.loads(files[0].stats)
    assert (stats["numRecords"], files[0].rows) == (30, 30)
    assert stats["minValues"] == {
        "topic": "t", "partition": 0, "offset": 100, "timestamp": "2020-09-13T12:28:20.000Z",
    }  # fmt: skip
    assert stats["maxValues"]["offset"] == 129
    assert (tmp_path / files[0].name).stat().st_size == files[0].size


def test_times_that_python_cannot_tell_are_left_out_of_the_description(tmp_path):
    far = batch(0, 3).set_column(5, SCHEMA.field(5), pa.array([0, 1, 2**63 - 1], pa.timestamp("us", tz="UTC")))
    with ParquetFiles(tmp_path, "part") as files:
        files.write(far)
    stats = json.loads(files.files()[0].stats)
    assert stats["maxValues"] == {"topic": "t", "partition": 0, "offset": 2}


def test_a_topic_that_was_created_again_is_known(tmp_path):
    lake = Lake.open(tmp_path / "lake", T)
    assert lake.is_same_topic("t", ID)
    load(lake, 0, 10)
    assert lake.is_same_topic("t", ID)
    assert lake.is_same_topic("t", ZERO_UUID), "an old broker has no ids"
    assert not lake.is_same_topic("t", OTHER_ID)


def test_only_the_same_topics_go_into_a_table(tmp_path):
    Lake.open(tmp_path / "lake", Subscribe(("b", "a")))
    Lake.open(tmp_path / "lake", Subscribe(("a", "b")))
    for other in (T, SubscribePattern("a|b")):
        with pytest.raises(BadLake, match="is loaded from"):
            Lake.open(tmp_path / "lake", other)
    assert source_text(SubscribePattern("a|b")) == '{"pattern": "a|b"}'


def test_folders_that_are_no_lake(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "holiday.jpg").touch()
    (tmp_path / "file").touch()
    write_deltalake(tmp_path / "table", pa.table({"x": [1]}))
    (tmp_path / "torn" / "_delta_log").mkdir(parents=True)
    (tmp_path / "torn" / "_delta_log" / "00000000000000000001.json").touch()
    for name, says in (
        ("full", "no Delta table"),
        ("file", "is a file"),
        ("table", "did not make"),
        ("torn", "damaged|cannot be opened"),
    ):
        with pytest.raises(BadLake, match=says) as refused:
            Lake.open(tmp_path / name, T)
        assert "\n" not in str(refused.value)
    with pytest.raises(BadLake, match="cannot be opened"):
        Lake.open(tmp_path / "file" / "below", T)


def test_a_loader_killed_while_it_made_the_table_is_no_obstacle(tmp_path):
    (tmp_path / "lake" / "_delta_log").mkdir(parents=True)
    assert Lake.open(tmp_path / "lake", T).version == 0
