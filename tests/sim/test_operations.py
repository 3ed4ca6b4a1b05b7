"""Histories of the simulation as read by the checker: it finds anomalies, and none in valid histories."""

from __future__ import annotations

from odradek.base.units import TopicName, TopicPartition
from sim.checks import not_fenced
from sim.history import History, Identity, Moved, Seen, Sent, Transaction
from sim.operations import Translation, anomalies

HERE, THERE = (TopicPartition(TopicName("transactional"), index) for index in range(2))
FIRST = Identity("transactions", (1, 0), 5)


class Handmade:
    """A transaction of two values in two partitions, and a reader of committed records."""

    def __init__(self, *, is_committed: bool | None, commit_requested_us: int | None = 30) -> None:
        self.history = History(0, lambda: 1_000)
        self.history.read_committed_readers["consumer"] = None
        self.history.committed = {HERE: [], THERE: []}
        self.transaction = Transaction("transactor", FIRST, 10, commit_requested_us=commit_requested_us, ended_us=50)
        self.transaction.is_committed = is_committed
        self.history.transactions.append(self.transaction)
        for partition, value in ((HERE, "one"), (THERE, "two")):
            sent = Sent("transactor", 0, partition, value, True, True, 10, 20, 0, transaction=self.transaction)
            self.history.sent[value] = sent
            self.transaction.sent.append(sent)
        self.history.moved.append(Moved("consumer", 0, 1, {HERE: 0, THERE: 0}))

    def read(self, partition: TopicPartition, value: str, time_us: int = 100) -> Seen:
        seen = Seen("consumer", 0, time_us, partition, 0, value)
        self.history.seen.append(seen)
        return seen

    def at_end(self, *partitions: TopicPartition) -> None:
        for partition, value in ((HERE, "one"), (THERE, "two")):
            if partition in partitions:
                self.history.committed[partition].append(Seen("committed", 0, 900, partition, 0, value))

    def found(self) -> list[str]:
        return [line.split(":")[1].strip() for line in anomalies(self.history)]


def test_a_whole_transaction_is_fine() -> None:
    for outcome in (True, None):
        made = Handmade(is_committed=outcome)
        made.read(HERE, "one")
        made.at_end(HERE, THERE)
        assert made.found() == []


def test_half_a_transaction_is_lost() -> None:
    for outcome in (True, None):
        made = Handmade(is_committed=outcome)
        made.at_end(HERE)
        assert made.found() == ["lost write"]


def test_a_read_of_uncommitted_values_is_an_anomaly() -> None:
    for outcome, requested_us in ((False, None), (None, None)):
        made = Handmade(is_committed=outcome, commit_requested_us=requested_us)
        assert made.found() == []
        made.read(HERE, "one")
        assert made.found() == ["aborted read"]


def test_a_read_before_the_commit_request_is_an_anomaly() -> None:
    made = Handmade(is_committed=True)
    made.read(HERE, "one", time_us=29)
    made.at_end(HERE, THERE)
    assert made.found() == ["precommitted read"]


def test_readers_of_uncommitted_records_are_left_out() -> None:
    made = Handmade(is_committed=False, commit_requested_us=None)
    made.history.read_committed_readers.clear()
    made.read(HERE, "one")
    assert made.found() == []


def test_operations_are_numbered_as_they_were_invoked() -> None:
    made = Handmade(is_committed=True)
    made.read(HERE, "one")
    made.at_end(HERE, THERE)
    operations = Translation(made.history).operations()
    assert [operation.number for operation in operations] == list(range(len(operations)))
    assert [str(operation.kind) for operation in operations] == ["assign", "txn", "poll", "final", "final"]


def test_a_write_after_fencing_is_found() -> None:
    made = Handmade(is_committed=None)
    made.history.final = {HERE: [Seen("final", 0, 900, HERE, 0, "one")]}
    assert list(not_fenced(made.history)) == []
    made.history.identities.append(FIRST._replace(producer=(1, 1), returned_us=9))
    assert list(not_fenced(made.history)) == ["one was written by (1, 0) after (1, 1) had begun"]
