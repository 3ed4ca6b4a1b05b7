"""Checks of keyed records and compaction: they find every anomaly, and report none in valid histories."""

from __future__ import annotations

from random import Random

from odradek.base.units import TopicName, TopicPartition
from odradek.record.compression import Codec
from odradek.record.records import Record
from sim.checks import lost, not_compact
from sim.history import Compaction, History, Identity, Seen, Sent, Transaction
from sim.operations import anomalies
from sim.simclients import batch_of, batches_in, records_in
from sim.simclock import SECOND_US
from sim.simkeys import SimKeys, is_tombstone, key_of, value_of
from sim.superseding import NEVER_US, Superseding

HERE = TopicPartition(TopicName("durable"), 0)
END_US = 100 * SECOND_US
OLD, NEW, DELETED, OTHER = "k1=p-1", "k1=p-2", "k1=p-3 deleted", "k2=p-4"


class Handmade:
    """A history of one value per second, acknowledged at its number's offset; passes cover all from second 10 on."""

    def __init__(self, *values: str, retention_ms: int = 0, min_lag_ms: int = 0) -> None:
        self.history = History(0, lambda: END_US, compaction=Compaction(retention_ms, min_lag_ms))
        for place, value in enumerate(values):
            sent_us = place * SECOND_US
            sent = Sent("p", place, HERE, value, True, True, sent_us, sent_us + 1, place)
            self.history.sent[value] = sent
        self.pass_at(10 * SECOND_US, len(values))

    def pass_at(self, time_us: int, end: int) -> None:
        self.history.now_us = lambda: time_us
        self.history.passes.clear()
        self.history.passed(HERE, end)
        self.history.now_us = lambda: END_US

    def in_transaction(self, value: str, *, is_committed: bool | None, commit_requested_us: int | None = None) -> None:
        transaction = Transaction("p", Identity("t", (1, 0), 0), 0, commit_requested_us=commit_requested_us)
        transaction.is_committed = is_committed
        transaction.sent.append(self.history.sent[value])
        self.history.sent[value].transaction = transaction
        self.history.transactions.append(transaction)

    def is_left_with(self, *values: str) -> Handmade:
        places = {value: place for place, value in enumerate(self.history.sent)}
        for end in (self.history.final, self.history.committed):
            end[HERE] = [Seen("final", 0, END_US, HERE, places[value], value) for value in values]
        return self

    def lost(self) -> list[str]:
        return [line.split(" was")[0] for line in lost(self.history)]

    def since_us(self, value: str) -> int:
        return Superseding(self.history).since_us()[value]

    def read(self, reader: str, time_us: int, *values: str) -> None:
        places = {value: place for place, value in enumerate(self.history.sent)}
        self.history.seen += [Seen(reader, 0, time_us, HERE, places[value], value) for value in values]


def test_the_value_determines_the_record() -> None:
    keys = SimKeys(Random(1), is_compacted=True)
    values = [keys.value(f"producer-{number}") for number in range(200)]
    assert {is_tombstone(value) for value in values} == {True, False}
    assert any(key_of(value) == value for value in values)
    assert max(values.count(value) for value in values) == 1
    for codec in Codec:
        (batch,) = batches_in(batch_of(values, 7, codec))
        assert [value for _, value in records_in(batch, 0)] == values


def test_an_altered_record_has_an_unknown_value() -> None:
    right = Record(0, 7, b"k1", OLD.encode(), ())  # type: ignore[arg-type]
    assert value_of(right) == OLD
    assert value_of(right._replace(key=b"k2")) != OLD
    assert value_of(right._replace(value=None)) != OLD
    assert value_of(right._replace(value=None, headers=(("text", OLD.encode()),))) != OLD


def test_topics_without_compaction_lose_nothing() -> None:
    made = Handmade(OLD, NEW).is_left_with(NEW)
    made.history.compaction = None
    assert made.lost() == [OLD]


def test_an_older_value_may_be_gone_and_the_last_may_not() -> None:
    assert Handmade(OLD, NEW, OTHER).is_left_with(NEW, OTHER).lost() == []
    assert Handmade(OLD, NEW, OTHER).is_left_with(OLD, OTHER).lost() == [NEW]
    assert Handmade(OLD, NEW, OTHER).is_left_with(OTHER).lost() == [OLD, NEW]


def test_a_tombstone_may_be_gone_after_its_retention() -> None:
    assert Handmade(OLD, DELETED, retention_ms=90_000).is_left_with().lost() == []
    assert Handmade(OLD, DELETED, retention_ms=100_000).is_left_with().lost() == [OLD, DELETED]
    assert Handmade(OLD, DELETED, retention_ms=100_000).is_left_with(DELETED).lost() == []
    assert Handmade(OLD, DELETED, NEW).is_left_with().lost() == [NEW]
    made = Handmade(OLD, DELETED, retention_ms=100_000).is_left_with()
    made.history.walls_ahead_ms.append(5_000)
    assert made.lost() == []


def test_records_outside_of_a_pass_are_not_removed() -> None:
    made = Handmade(OLD, NEW).is_left_with(NEW)
    made.pass_at(SECOND_US, 1)  # Beyond the old one, and not beyond the new one.
    assert made.lost() == [OLD]
    made.history.passes.clear()
    assert made.lost() == [OLD]


def test_aborted_records_may_be_removed_and_remove_no_others() -> None:
    made = Handmade(OLD, NEW).is_left_with(OLD)
    made.in_transaction(NEW, is_committed=False)
    assert made.lost() == []
    assert made.is_left_with(NEW).lost() == [OLD]
    assert made.since_us(OLD) == NEVER_US
    made.history.passes.clear()
    assert made.is_left_with(OLD).lost() == [NEW]


def test_the_earliest_removal_of_a_record_is_computed() -> None:
    assert Handmade(OLD, NEW).since_us(OLD) == 10 * SECOND_US
    assert Handmade(OLD, NEW).since_us(NEW) == NEVER_US
    assert Handmade(OLD, NEW, min_lag_ms=30_000).since_us(OLD) == 31 * SECOND_US
    assert Handmade(OLD, DELETED, retention_ms=20_000).since_us(DELETED) == 21 * SECOND_US
    made = Handmade(OLD, NEW)
    made.in_transaction(NEW, is_committed=None, commit_requested_us=40 * SECOND_US)
    assert made.since_us(OLD) == 40 * SECOND_US


def test_an_unacknowledged_record_may_have_any_offset() -> None:
    made = Handmade(NEW, OLD)
    assert made.since_us(OLD) == NEVER_US
    made.history.sent[NEW].offset = None
    assert made.since_us(OLD) == 10 * SECOND_US
    assert made.is_left_with().lost() == [NEW, OLD]  # A record of the key has to remain.


def test_a_read_may_leave_out_removed_records_only() -> None:
    for read_us, is_found in ((9 * SECOND_US, True), (10 * SECOND_US, False)):
        made = Handmade(OTHER, OLD, NEW).is_left_with(OTHER, NEW)
        made.history.sent[OLD].acknowledged_us = SECOND_US
        made.read("consumer", read_us, OTHER, NEW)
        assert bool(list(anomalies(made.history))) == is_found


def test_a_compacted_range_has_each_key_once() -> None:
    made = Handmade(OTHER, OLD, NEW).is_left_with(OTHER, OLD, NEW)
    made.history.compacted_to[HERE] = 2
    assert list(not_compact(made.history)) == []
    made.history.compacted_to[HERE] = 3
    assert len(list(not_compact(made.history))) == 1
    made.is_left_with(OTHER, NEW)
    assert list(not_compact(made.history)) == []
    made.in_transaction(NEW, is_committed=False)
    assert len(list(not_compact(made.history))) == 1
