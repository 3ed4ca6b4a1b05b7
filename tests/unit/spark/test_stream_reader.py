"""Progress of a stream: the reader with a cluster made of a dict, without Spark and without waiting."""

import json
import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from odradek.base.units import TopicName
from odradek.base.uuids import Uuid
from odradek.spark import stream_reader as stream
from odradek.spark.checkpoint_offsets import EARLIEST
from odradek.spark.cluster_interface import NoSuchTopic, Topic
from odradek.spark.reading import DataLoss
from odradek.spark.source_options import BadOption, Mode, read_options
from odradek.spark.stream_reader import StreamReader


class Cluster:
    """A cluster with the end offsets of each topic's partitions; every log starts at 0."""

    def __init__(self, **ends):
        self.ends = {name: list(parts) for name, parts in ends.items()}
        self.ids = dict.fromkeys(ends, 1)

    def topic_names(self):
        return sorted(self.ends)

    def topics(self, names):
        return {
            name: Topic(TopicName(name), Uuid(bytes([self.ids[name]] * 16)), tuple(range(len(self.ends[name]))))
            for name in names
            if name in self.ends
        }

    def offsets(self, timestamps):
        return {at: 0 if when == EARLIEST else self.ends[at.topic][at.partition] for at, when in timestamps.items()}

    def create_again(self, name, *ends):
        self.ends[name] = list(ends)
        self.ids[name] = self.ids.get(name, 0) + 1

    def close(self):
        pass


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(stream, "LONG_POLL_SECONDS", 0.01)


def reader(cluster, **options):
    options = {"kafka.bootstrap.servers": "a:1", "startingOffsets": "earliest", "subscribe": "t"} | options
    if "subscribePattern" in options:
        del options["subscribe"]
    made = StreamReader(read_options(options, Mode.STREAM))
    made._kafka = cluster
    return made


def latest(reading, start, limit=None):
    return reading.latestOffset(start, limit or reading.getDefaultReadLimit())


def test_stream_starts_at_the_configured_offsets():
    cluster = Cluster(t=[5, 7])
    reading = reader(cluster, startingOffsets="latest")
    assert reading.initialOffset() == {"t": {"0": 5, "1": 7}}
    cluster.ends["t"] = [50, 70]
    assert reading.initialOffset() == {"t": {"0": 5, "1": 7}}, "Spark asks twice"
    assert reader(cluster).initialOffset() == {"t": {"0": 0, "1": 0}}


def test_first_batch_of_a_stream_from_latest_is_empty():
    """Otherwise a query killed in its first batch would look up the end again, and skip the records between."""
    cluster = Cluster(t=[5])
    first = reader(cluster, startingOffsets="latest")
    start = first.initialOffset()
    cluster.ends["t"] = [8]
    assert latest(first, start) == {"t": {"0": 5}}
    again = reader(cluster, startingOffsets="latest")  # Spark asks for the start, its batch, and then the next end.
    assert again.initialOffset() == {"t": {"0": 8}}
    assert again.partitions(again.initialOffset(), {"t": {"0": 5}}) == []
    ends = [latest(again, {"t": {"0": 5}}) for _ in range(2)]
    assert ends[-1] == {"t": {"0": 8}}


def test_start_beyond_the_end_of_the_log_is_refused_or_limited(caplog):
    """This does not mean that the topic was recreated: nothing was read from it before."""
    given = {"startingOffsets": '{"t":{"0":10,"1":1000}}'}
    with pytest.raises(BadOption, match="startingOffsets starts partition t-1 at offset 1000, but its log ends at 7"):
        reader(Cluster(t=[10, 7]), **given).initialOffset()
    cluster = Cluster(t=[10, 7])
    lenient = reader(cluster, **given, failOnDataLoss="false")
    start = lenient.initialOffset()
    assert start == {"t": {"0": 10, "1": 7}}, "as with Spark's own source"
    assert "t-1 at offset 1000, but its log ends at 7" in caplog.text
    assert latest(lenient, start) == start
    cluster.ends["t"] = [10, 9]
    assert latest(lenient, start) == {"t": {"0": 10, "1": 9}}


def test_offsets_without_new_records_have_the_same_text():
    reading = reader(Cluster(b=[5] * 12, a=[1]), subscribePattern=".*")
    end = latest(reading, reading.initialOffset())
    assert list(end) == ["a", "b"]
    assert list(end["b"]) == [str(n) for n in range(12)]
    shuffled = {"b": dict(reversed(end["b"].items())), "a": end["a"]}
    assert json.dumps(latest(reading, shuffled)) == json.dumps(end)


def test_new_partition_starts_at_offset_0():
    cluster = Cluster(t=[5])
    reading = reader(cluster)
    start = latest(reading, reading.initialOffset())
    cluster.ends["t"] = [5, 3]
    end = latest(reading, start)
    assert end == {"t": {"0": 5, "1": 3}}
    assert [tuple(task.ranges) for task in reading.partitions(start, end)] == [(("t", 1, 0, 3),)]


def test_plan_depends_only_on_its_arguments():
    start, end = {"t": {"0": 5, "1": 5}}, {"t": {"0": 900_000, "1": 7}}
    fresh = reader(Cluster(), parallelism="3")
    used = reader(Cluster(t=[900_000, 7]), parallelism="3")
    used.initialOffset()
    latest(used, start)
    plans = [[task.ranges for task in reading.partitions(start, end)] for reading in (fresh, used)]
    assert plans[0] == plans[1]
    assert len(plans[0]) == 3


def test_rate_is_limited_except_for_trigger_once():
    reading = reader(Cluster(t=[900, 100]), maxOffsetsPerTrigger="100")
    start = reading.initialOffset()
    assert reading.getDefaultReadLimit() == ReadMaxRows(100)
    assert latest(reading, start) == {"t": {"0": 90, "1": 10}}
    assert latest(reading, start, ReadAllAvailable()) == {"t": {"0": 900, "1": 100}}


def test_available_now_stops_at_the_end_found_at_its_start():
    cluster = Cluster(t=[10])
    reading = reader(cluster, maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    reading.prepareForTriggerAvailableNow()
    at = reading.initialOffset()
    cluster.ends["t"] = [100, 100]
    for expected in (6, 10, 10):
        at = latest(reading, at)
        assert at == {"t": {"0": expected}}, "too few or not"


def test_available_now_may_start_after_its_target():
    """With startingOffsets=latest, if records and a partition are added between the two lookups."""
    cluster = Cluster(t=[10])
    reading = reader(cluster, startingOffsets="latest")
    reading.prepareForTriggerAvailableNow()
    cluster.ends["t"] = [12, 3]
    start = reading.initialOffset()
    cluster.ends["t"] = [14, 4, 5]
    assert latest(reading, start) == start == {"t": {"0": 12, "1": 3}}


def test_batch_waits_for_min_offsets_up_to_the_trigger_delay(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(stream.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(stream.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    cluster = Cluster(t=[3])
    reading = reader(cluster, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert reading.getDefaultReadLimit() == ReadMinRows(10)
    first = latest(reading, reading.initialOffset())
    assert first == {"t": {"0": 3}}, "the first batch does not wait"
    cluster.ends["t"] = [8]
    assert latest(reading, first) == first
    cluster.ends["t"] = [13]
    second = latest(reading, first)
    assert second == {"t": {"0": 13}}
    cluster.ends["t"] = [14]
    assert latest(reading, second) == second
    now[0] += 60
    assert latest(reading, second) == {"t": {"0": 14}}


def test_recreated_topic_is_detected_during_the_query():
    for fail in ("true", "false"):
        cluster = Cluster(t=[10, 20])
        reading = reader(cluster, failOnDataLoss=fail)
        start = latest(reading, reading.initialOffset())
        cluster.create_again("t", 15, 25)  # Its ends alone would not show it.
        if fail == "true":
            with pytest.raises(DataLoss, match="t-0 was read up to offset 10, but its log now ends at"):
                latest(reading, start)
            continue
        back = latest(reading, start)
        assert back == {"t": {"0": 0, "1": 0}}
        assert reading.partitions(start, back) == []
        assert latest(reading, back) == {"t": {"0": 15, "1": 25}}
        assert latest(reading, {"t": {"0": 15, "1": 25}}) == {"t": {"0": 15, "1": 25}}


def test_recreated_topic_is_detected_at_the_start_of_a_query():
    cluster = Cluster(t=[4])
    with pytest.raises(DataLoss, match="but its log now ends at"):
        latest(reader(cluster), {"t": {"0": 10}})
    reading = reader(cluster, failOnDataLoss="false")
    assert latest(reading, {"t": {"0": 10}}) == {"t": {"0": 0}}
    assert latest(reading, {"t": {"0": 0}}) == {"t": {"0": 4}}


def test_deleted_topic_is_data_loss_or_ignored():
    cluster = Cluster(t=[4], u=[5])
    strict = reader(cluster, subscribe="t,u")
    start = latest(strict, strict.initialOffset())
    del cluster.ends["u"]
    with pytest.raises(NoSuchTopic, match="'u'"):
        latest(strict, start)
    with pytest.raises(DataLoss, match="u-0 no longer exists; it was read up to offset 5"):
        latest(reader(cluster, subscribePattern="t|u"), start)
    assert latest(reader(cluster, subscribe="t,u", failOnDataLoss="false"), start) == {"t": {"0": 4}}


def test_checkpoint_of_another_query_is_refused():
    cluster = Cluster(t=[4], u=[5])
    with pytest.raises(BadOption, match="contains offsets of u-0, which this query does not read"):
        latest(reader(cluster), {"u": {"0": 5}})
    with pytest.raises(BadOption, match="contains offsets of u-0"):
        reader(cluster).partitions({"u": {"0": 1}}, {"u": {"0": 5}})
    with pytest.raises(BadOption, match="does not contain offsets of Kafka topics"):
        latest(reader(cluster), {"fileOffset": 3})
    assert latest(reader(cluster, failOnDataLoss="false"), {"u": {"0": 5}}) == {"t": {"0": 4}}


def test_pickled_reader_has_no_connection():
    reading = reader(Cluster(t=[5]))
    reading.initialOffset()
    copy = pickle.loads(pickle.dumps(reading))
    assert copy._kafka is None
    assert copy.partitions({}, {"t": {"0": 5}}) == reading.partitions({}, {"t": {"0": 5}})
