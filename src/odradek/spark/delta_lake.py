"""Delta table that records how far its topics are loaded: data and offsets change in one commit.

Delta's log is a chain of numbered JSON files, each created by one atomic put-if-absent. One of the loader's files:

    add   part-00000007-0-5f1c....parquet   rows of the batch          (one line for each file)
    txn   odradek-load             7        number of the batch
    txn   odradek-load:flights:0   184320   next offset to load of flights-0    (one for each partition that moved)
    txn   odradek-load:flights:id  3519...  63 bits of the topic's id
    commitInfo  odradek.start, odradek.end  the same offsets for people, shown in the table's history

The offsets are in txn actions, because Delta's checkpoints keep the newest version of every txn forever. They are not
in commitInfo, which is deleted when old log files are cleaned up.

Two loaders on one table: both read version n, both write files, and one commits n+1. delta-rs rejects the other's
commit because it has not seen the new txn odradek-load ("Concurrent transaction failed"). delta-rs does NOT reject an
old or equal txn version from a handle that has seen the newest one. A commit must therefore use the handle from which
its start offsets were read. That is why one object, a Lake, both returns offsets and commits, and forgets nothing in
between.

Other writers exist, too. An ALTER TABLE, DELETE or OPTIMIZE may fail a commit that does not conflict with it. A store's
response may be lost after the store has executed the request. After a failed commit, the Lake therefore reads the table
again. The commit may be there after all (each has a unique name), or another loader may have moved the offsets.
Otherwise the Lake retries the commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import NamedTuple, TypeVar
from uuid import uuid4

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.spark.checkpoint_offsets import Offsets, to_text
from odradek.spark.lake_location import Place
from odradek.spark.lake_reasons import FAILURES, BadLake, failing_as, is_silence, reason_of
from odradek.spark.lake_table import check_writable, open_table, table_at
from odradek.spark.source_options import Selection

LOADER = "odradek-load"
COMMIT_KEY = "odradek.commit"
NOTHING = -1  # Offset of a deleted partition: its topic was recreated with fewer partitions.
COMMIT_ATTEMPTS_MAX = 50
RETRY_SECONDS = 0.5
UNSYNCED_VERSIONS_MAX = 100  # Commits that another process may have left unsynced.


T = TypeVar("T")


class Fenced(Exception):
    """Error for a table that another loader changed since it was read.

    Nothing of this batch is in the table.
    """


class DataFile(NamedTuple):
    """Parquet file that a task wrote, not yet part of any table."""

    name: str  # Relative to the table.
    size: int
    modified_ms: int
    stats: str  # Delta's JSON: row count, smallest and largest values.

    @property
    def rows(self) -> int:
        return int(json.loads(self.stats)["numRecords"])


class Lake:
    """Table as of one version. Not shared between threads."""

    def __init__(self, place: Place, table: DeltaTable, patience_ms: int = 0) -> None:
        self.place = place
        self._patience_s = patience_ms / 1000
        self._table = table
        self._read: dict[str, int | None] = {}  # Reading a txn searches Delta's log: 1 ms or more, once per version.
        self._read_version = self.version
        self._synced = max(0, self.version - UNSYNCED_VERSIONS_MAX) - 1
        self._sync()

    @classmethod
    def open(cls, place: Place, selection: Selection, patience_ms: int = 0) -> Lake:
        """Open the table, or create it in a new or empty place. Raise BadLake.

        `patience_ms` bounds later outages of an object store.
        """
        return cls(place, open_table(place, selection), patience_ms)

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def batch(self) -> int:
        """Return the number of the last batch; 0 before the first."""
        return self._transaction(LOADER) or 0

    def next_offset(self, at: TopicPartition) -> int | None:
        """Return the first offset of the partition that is not in the table, or None if nothing was loaded."""
        offset = self._transaction(_offset_name(at))
        return None if offset == NOTHING else offset

    def is_same_topic(self, topic: str, topic_id: Uuid) -> bool:
        """Return False only if both ids are known and differ: the topic was deleted and recreated."""
        known = self._transaction(_id_name(topic))
        return not known or topic_id == ZERO_UUID or known == _id_number(topic_id)

    def was_loaded(self, topic: str) -> bool:
        """Return whether the table has records of the topic, whatever happened to the topic since."""
        names = _id_name(topic), _offset_name(TopicPartition(TopicName(topic), 0))
        return any(self._transaction(name) is not None for name in names)

    def refresh(self) -> None:
        """Load the newest version. Raise BadLake."""
        self._retry(self._update)
        if self.version != self._read_version:
            self._read, self._read_version = {}, self.version
            check_writable(self.place, self._table)
        self._sync()

    def commit(self, files: Sequence[DataFile], start: Offsets, end: Offsets, topic_ids: Mapping[str, Uuid]) -> None:
        """Add the files, move the offsets, and load the new version.

        Raise Fenced, or BadLake for errors of the disk, the store or another writer.
        """
        assert set(start) == set(end), "a batch has the same partitions at its start and end"
        with failing_as(f"Failed to write lake {self.place}"):
            self.place.sync_names()
        name, batch = uuid4().hex, self.batch
        metadata = {COMMIT_KEY: name, "odradek.start": to_text(start), "odradek.end": to_text(end)}
        for _ in range(COMMIT_ATTEMPTS_MAX):
            if self._commit_once(files, metadata, self._transactions(end, topic_ids)):
                return
            if self.batch != batch:
                raise Fenced(f"Another loader writes to {self.place}; this loader stops. No records were loaded twice.")
        raise BadLake(
            f"Failed to write lake {self.place}: others changed it during each of {COMMIT_ATTEMPTS_MAX} attempts."
        )

    def compact(self) -> int:
        """Merge small files into large ones in a separate commit. Return by how many files the table shrank."""
        self.refresh()
        with failing_as(f"Failed to compact lake {self.place}"):
            metrics = self._table.optimize.compact()
            self.place.sync_files(self._table.file_uris() if metrics["numFilesAdded"] else ())
        self.refresh()
        return int(metrics["numFilesRemoved"]) - int(metrics["numFilesAdded"])

    def rows(self) -> int:
        return self._retry(self._table.count)

    def _commit_once(
        self, files: Sequence[DataFile], metadata: Mapping[str, str], transactions: Sequence[Transaction]
    ) -> bool:
        """Try to commit once, and load the newest version. Return False if others changed the table.

        Raise BadLake.
        """
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.name, file.size, {}, file.modified_ms, True, file.stats) for file in files
        ]
        before = self.version
        properties = CommitProperties(custom_metadata=dict(metadata), app_transactions=list(transactions))

        def write() -> None:
            self._table.create_write_transaction(actions, "append", self._table.schema(), commit_properties=properties)

        try:
            self.place.call(write)
        except FAILURES as error:
            self.refresh()
            if self._has_commit(metadata[COMMIT_KEY], before):
                return True
            if isinstance(error, CommitFailedError) and self.version > before:
                return False
            if is_silence(error) and self.place.folder is None:
                return False  # The store is back; otherwise the read would have failed.
            raise BadLake(f"Failed to write lake {self.place}: {reason_of(error)}") from error
        read = self._read | {each.app_id: each.version for each in transactions}
        self.refresh()
        if self.version == before + 1:
            self._read = read
        return True

    def _has_commit(self, commit: str, since: int) -> bool:
        """Return whether one of the versions after `since` is that commit."""
        newer = self._retry(lambda: self._table.history(self.version - since)) if self.version > since else []
        return any(version.get(COMMIT_KEY) == commit for version in newer)

    def _update(self) -> None:
        try:
            self._table.update_incremental()
        except DeltaError:
            # The log files in between were cleaned up after a checkpoint.
            self._table = table_at(self.place)

    def _retry(self, query: Callable[[], T]) -> T:
        """Retry until the store answers: delta-rs itself retries only for seconds. Raise BadLake."""
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                with failing_as(f"Failed to read lake {self.place}"):
                    return self.place.call(query)
            except BadLake as error:
                if not is_silence(error.__cause__) or time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    def _sync(self) -> None:
        """Sync the versions that the next batch builds on, whoever wrote them."""
        if self.version > self._synced:
            with failing_as(f"Failed to write lake {self.place}"):
                self.place.sync_log(self._synced + 1, self.version)
            self._synced = self.version

    def _transaction(self, name: str) -> int | None:
        if name not in self._read:
            self._read[name] = self._retry(lambda: self._table.transaction_version(name))
        return self._read[name]

    def _transactions(self, end: Offsets, topic_ids: Mapping[str, Uuid]) -> list[Transaction]:
        numbers = {
            _offset_name(at): NOTHING for name in topic_ids for at in self._recreated_partitions(name, topic_ids[name])
        }
        numbers |= {_offset_name(at): offset for at, offset in sorted(end.items())}
        numbers |= {
            _id_name(name): _id_number(topic_id)
            for name, topic_id in sorted(topic_ids.items())
            if topic_id != ZERO_UUID
        }
        changed = {name: number for name, number in numbers.items() if self._transaction(name) != number}
        return [Transaction(LOADER, self.batch + 1), *(Transaction(*pair) for pair in changed.items())]

    def _recreated_partitions(self, topic: str, topic_id: Uuid) -> Iterator[TopicPartition]:
        """Yield the partitions of a recreated topic; their numbers start at 0."""
        if not self.is_same_topic(topic, topic_id):
            partitions = (TopicPartition(TopicName(topic), number) for number in count())
            yield from takewhile(lambda at: self.next_offset(at) is not None, partitions)


def _offset_name(at: TopicPartition) -> str:
    return f"{LOADER}:{at.topic}:{at.partition}"


def _id_name(topic: str) -> str:
    return f"{LOADER}:{topic}:id"


def _id_number(topic_id: Uuid) -> int:
    """Return 63 of the id's 122 random bits, because a txn version is a signed 64-bit number.

    They are enough to distinguish two topics.
    """
    return int.from_bytes(topic_id, "big") >> 65
