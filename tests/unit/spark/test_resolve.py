"""Partitions and offsets, resolved from topics and bounds by a cluster made of dicts."""

import pytest

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.spark.checkpoint_offsets import EARLIEST, LATEST
from odradek.spark.cluster_interface import NoSuchTopic, Topic
from odradek.spark.resolve import find_partitions, is_selected, offsets_at
from odradek.spark.source_options import (
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    BadOption,
    Everywhere,
    Subscribe,
    SubscribePattern,
)


def at(topic, partition):
    return TopicPartition(TopicName(topic), partition)


class Cluster:
    """A cluster whose partitions are tuples of first offset and record timestamps."""

    def __init__(self, logs):
        self.logs = logs

    def topic_names(self):
        return sorted({where.topic for where in self.logs})

    def topics(self, names):
        return {
            name: Topic(TopicName(name), Uuid(ZERO_UUID), tuple(w.partition for w in self.logs if w.topic == name))
            for name in names
            if name in self.topic_names()
        }

    def offsets(self, timestamps):
        return {where: self.offset(where, time) for where, time in timestamps.items()}

    def offset(self, where, time):
        first, times = self.logs[where]
        if time == EARLIEST:
            return first
        if time == LATEST:
            return first + len(times)
        return next((first + n for n, stamp in enumerate(times) if stamp >= time), LATEST)


CLUSTER = Cluster({at("a", 0): (5, [10, 20, 30]), at("a", 1): (0, [15]), at("ab", 0): (0, []), at("b", 0): (0, [99])})


def test_partitions_are_found_by_each_kind_of_selection():
    assert find_partitions(CLUSTER, Subscribe(("a", "b"))).partitions == (at("a", 0), at("a", 1), at("b", 0))
    assert find_partitions(CLUSTER, Assign((at("a", 1),))).partitions == (at("a", 1),)
    assert find_partitions(CLUSTER, SubscribePattern("a.*")).partitions == (at("a", 0), at("a", 1), at("ab", 0))
    assert find_partitions(CLUSTER, SubscribePattern("a")).partitions == (at("a", 0), at("a", 1)), (
        "the whole name has to match"
    )
    assert find_partitions(CLUSTER, SubscribePattern("z")).partitions == ()
    assert find_partitions(CLUSTER, Subscribe(("a", "z")), missing_ok=True).partitions == (at("a", 0), at("a", 1))


def test_missing_topic_or_partition_is_refused():
    with pytest.raises(NoSuchTopic, match="Topic 'z' does not exist"):
        find_partitions(CLUSTER, Subscribe(("a", "z")))
    with pytest.raises(NoSuchTopic, match="Partition a-7 does not exist"):
        find_partitions(CLUSTER, Assign((at("a", 7),)))


def test_is_selected_matches_find_partitions():
    for selection in (Subscribe(("a",)), Assign((at("a", 1),)), SubscribePattern("a.*")):
        found = find_partitions(CLUSTER, selection).partitions
        assert tuple(sorted(where for where in CLUSTER.logs if is_selected(where, selection))) == found


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (Everywhere(EARLIEST), (5, 0)),
        (Everywhere(LATEST), (8, 1)),
        (AtOffsets({at("a", 0): 6, at("a", 1): LATEST}), (6, 1)),
        (AtOffsets({at("a", 0): EARLIEST, at("a", 1): 0}), (5, 0)),
        (AtTime(15), (6, 0)),
        (AtTimes({at("a", 0): 21, at("a", 1): 0}), (7, 0)),
    ],
)
def test_bounds_are_resolved_to_offsets(bound, expected):
    found = offsets_at(CLUSTER, (at("a", 0), at("a", 1)), bound, "starting", False)
    assert (found[at("a", 0)], found[at("a", 1)]) == expected


def test_time_after_the_last_record_is_the_end_or_refused():
    where = (at("a", 0), at("a", 1))
    assert offsets_at(CLUSTER, where, AtTime(20), "ending", True) == {at("a", 0): 6, at("a", 1): 1}
    assert offsets_at(CLUSTER, where, AtTime(20), "starting", True) == {at("a", 0): 6, at("a", 1): 1}
    with pytest.raises(BadOption, match="a-1 has no record at or after time 20"):
        offsets_at(CLUSTER, where, AtTime(20), "starting", False)


def test_given_offsets_must_match_the_partitions():
    with pytest.raises(BadOption, match="a-1 is missing"):
        offsets_at(CLUSTER, (at("a", 0), at("a", 1)), AtOffsets({at("a", 0): 1}), "starting", False)
    with pytest.raises(BadOption, match="contains b-0"):
        offsets_at(CLUSTER, (at("a", 0),), AtTimes({at("a", 0): 1, at("b", 0): 1}), "ending", False)
