"""Ranges of a batch, computed from its bounds: a start after its end is refused, as by Spark's own source."""

import pytest

from odradek.base.units import TopicName, TopicPartition
from odradek.spark.batch_reader import ranges_of
from odradek.spark.checkpoint_offsets import EARLIEST, LATEST
from odradek.spark.offset_resolution import MatchedPartitions
from odradek.spark.source_options import BadOption, Mode, read_options

FIRST, LAST = 5, 10
STAMPS = {offset: 100 + offset for offset in range(FIRST, LAST)}
PARTITIONS = tuple(TopicPartition(TopicName("t"), number) for number in (0, 1))


class Log:
    """Two partitions with the same offsets and timestamps."""

    def offsets(self, timestamps):
        return {at: self.offset(when) for at, when in timestamps.items()}

    def offset(self, when):
        special = {EARLIEST: FIRST, LATEST: LAST}
        return special[when] if when in special else next((n for n, at in STAMPS.items() if at >= when), LATEST)


def ranges(**options):
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options}
    found = ranges_of(Log(), MatchedPartitions(PARTITIONS, {}), read_options(given, Mode.BATCH))
    return [(span.partition, span.start, span.end) for span in found]


def test_start_at_the_end_gives_no_range():
    assert ranges(startingOffsets='{"t":{"0":10,"1":-2}}') == [(1, 5, 10)]
    assert ranges(startingTimestamp="107", endingTimestamp="107") == []
    assert ranges(startingTimestamp="900", startingOffsetsByTimestampStrategy="latest") == []


@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffsets": '{"t":{"0":-2,"1":8}}', "endingOffsets": '{"t":{"0":7,"1":6}}'},
            "Partition t-1: starting offset 8 is after the ending offset 6.",
        ),
        (
            {"startingOffsets": '{"t":{"0":100,"1":-2}}'},
            "Partition t-0: starting offset 100 is after the log end offset 10.",
        ),
        (
            {"startingTimestamp": "108", "endingTimestamp": "106"},
            "Partition t-0: starting offset 8 is after the ending offset 6.",
        ),
        (
            {"endingOffsets": '{"t":{"0":3,"1":-1}}'},
            "Partition t-0: starting offset 5 is after the ending offset 3.",
        ),
    ],
)
def test_start_after_the_end_is_refused(loss, options, message):
    with pytest.raises(BadOption) as refused:
        ranges(failOnDataLoss=loss, **options)
    assert str(refused.value) == message
