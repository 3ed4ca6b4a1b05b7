"""A Delta table that knows how far its topics are loaded: data and offsets move in one commit or not at all.

Delta's log is a chain of numbered JSON files, each made by one atomic put-if-absent.  One of them, as the loader
writes it:

    add   part-00000007-0-5f1c....parquet   rows of the batch          (one line for each file)
    txn   odradek-load             7        number of the batch
    txn   odradek-load:flights:0   184320   next offset to load of flights-0    (one for each partition that moved)
    txn   odradek-load:flights:id  3519...  63 bits of the topic's id
    commitInfo  odradek.start, odradek.end  the same offsets for people: they show in the table's history

The offsets live in txn actions and not in commitInfo, because Delta's checkpoints keep the newest version of every
txn for ever, while commitInfo goes when old log files are cleaned up.

Two loaders on one table: both read version n, both write files, one commits n+1.  delta-rs refuses the other's commit
for the txn odradek-load that it did not see ("Concurrent transaction failed").  It does NOT refuse an old or equal txn
version from a handle that saw the newest one, so a commit must go through the very handle its start offsets came from:
that is why a Lake hands out offsets and takes commits as one object, and forgets nothing in between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from odradek.base.units import TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.spark.offsets import Offsets, to_text
from odradek.spark.options import Columns, Selection, Subscribe, SubscribePattern
from odradek.spark.schema import arrow_schema, schema_of

LOADER = "odradek-load"
SOURCE_KEY = "odradek.source"
SCHEMA = arrow_schema(schema_of(Columns(headers=True)))


class BadLake(Exception):
    """Raised for a folder that cannot be loaded into; one sentence."""


class Fenced(Exception):
    """Another loader committed to the table since this one read it; nothing of this batch is in the table."""


class DataFile(NamedTuple):
    """One Parquet file that a task wrote, not yet part of any table."""

    name: str  # Relative to the table.
    size: int
    modified_ms: int
    stats: str  # Delta's JSON: row count, smallest and largest values.

    @property
    def rows(self) -> int:
        return int(json.loads(self.stats)["numRecords"])


class Lake:
    """The table as of one version.  Not shared between threads."""

    def __init__(self, path: Path, table: DeltaTable) -> None:
        self.path = path
        self._table = table

    @classmethod
    def open(cls, path: Path, selection: Selection) -> Lake:
        """Opens the table, or creates it in a new or empty folder.  Raises BadLake."""
        source = source_text(selection)
        path = path.absolute()  # Tasks write into it, and may have another working directory.
        if path.exists() and not path.is_dir():
            raise BadLake(f"Lake {path} is a file; name a folder.")
        with _failing_as(f"Lake {path} cannot be opened"):
            if not DeltaTable.is_deltatable(str(path)):
                _create(path, source)
            table = DeltaTable(path)
        _refuse_other_source(path, table, source)
        return cls(path, table)

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def batch(self) -> int:
        """The number of the last batch; 0 before the first."""
        return self._table.transaction_version(LOADER) or 0

    def next_offset(self, at: TopicPartition) -> int | None:
        """Returns the first offset of the partition that is not in the table; None if nothing was ever loaded of it."""
        return self._table.transaction_version(f"{LOADER}:{at.topic}:{at.partition}")

    def is_same_topic(self, topic: str, topic_id: Uuid) -> bool:
        """False only if both ids are known and differ: the topic was deleted and created again."""
        known = self._table.transaction_version(f"{LOADER}:{topic}:id")
        return not known or topic_id == ZERO_UUID or known == _id_number(topic_id)

    def refresh(self) -> None:
        """Goes to the newest version.  Raises BadLake."""
        try:
            self._table.update_incremental()
        except DeltaError:
            # The log files in between are gone, cleaned up behind a checkpoint.
            with _failing_as(f"Lake {self.path} cannot be read"):
                self._table = DeltaTable(self.path)

    def commit(self, files: Sequence[DataFile], start: Offsets, end: Offsets, topic_ids: Mapping[str, Uuid]) -> None:
        """Adds the files, moves the offsets, goes on to the new version.  Raises Fenced, or BadLake for a bad disk."""
        for at, offset in start.items():
            # They are equal, but where retention was faster and that was allowed.
            assert (self.next_offset(at) or 0) <= offset, f"{at} was planned from {offset}, not from this version"
        properties = CommitProperties(
            custom_metadata={"odradek.start": to_text(start), "odradek.end": to_text(end)},
            app_transactions=self._transactions(end, topic_ids),
        )
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.name, file.size, {}, file.modified_ms, True, file.stats) for file in files
        ]
        try:
            self._table.create_write_transaction(actions, "append", self._table.schema(), commit_properties=properties)
        except CommitFailedError as error:
            raise Fenced(
                f"Another loader writes to {self.path}, so this one stops; nothing was loaded twice."
            ) from error
        except (OSError, DeltaError) as error:
            raise BadLake(f"Lake {self.path} cannot be written: {_sentence(error)}") from error
        _sync_folder(self.path / "_delta_log")
        self.refresh()

    def compact(self) -> int:
        """Merges small files into large ones in a commit of its own; returns how many went away."""
        self.refresh()
        with _failing_as(f"Lake {self.path} cannot be compacted"):
            metrics = self._table.optimize.compact()
        return int(metrics["numFilesRemoved"]) - int(metrics["numFilesAdded"])

    def rows(self) -> int:
        return int(self._table.count())

    def _transactions(self, end: Offsets, topic_ids: Mapping[str, Uuid]) -> list[Transaction]:
        moved = {at: offset for at, offset in end.items() if self.next_offset(at) != offset}
        named = {name: _id_number(topic_id) for name, topic_id in topic_ids.items() if topic_id != ZERO_UUID}
        return [
            Transaction(LOADER, self.batch + 1),
            *(Transaction(f"{LOADER}:{at.topic}:{at.partition}", offset) for at, offset in sorted(moved.items())),
            *(
                Transaction(f"{LOADER}:{name}:id", number)
                for name, number in sorted(named.items())
                if self._table.transaction_version(f"{LOADER}:{name}:id") != number
            ),
        ]


def source_text(selection: Selection) -> str:
    """Returns the selection as the table's configuration keeps it."""
    match selection:
        case Subscribe(topics):
            return json.dumps({"topics": sorted(topics)})
        case SubscribePattern(pattern):
            return json.dumps({"pattern": pattern})
        case _:
            raise BadLake("A lake is loaded from whole topics, by name or by pattern.")


def _create(path: Path, source: str) -> None:
    try:
        _refuse_other_content(path)
        path.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            path,
            schema=Schema.from_arrow(SCHEMA),
            mode="ignore",
            description="Records of Kafka topics, each once, loaded by odradek load",
            configuration={SOURCE_KEY: source},
            raise_if_key_not_exists=False,
        )
    except (BadLake, DeltaError):
        # Two loaders that start at once make the same table; delta-rs lets one of them fail, or make it again on top.
        if not DeltaTable.is_deltatable(str(path)):
            raise


def _refuse_other_content(path: Path) -> None:
    log = path / "_delta_log"
    if log.is_dir() and any(log.glob("*.json")):
        raise BadLake(f"Lake {path} has a damaged Delta log: its first version is missing.")
    # A loader killed while it created the table leaves an empty _delta_log behind.
    if path.is_dir() and any(entry.name != "_delta_log" for entry in path.iterdir()):
        raise BadLake(f"Lake {path} holds files but is no Delta table; name a new or empty folder.")


def _refuse_other_source(path: Path, table: DeltaTable, source: str) -> None:
    loaded_from = table.metadata().configuration.get(SOURCE_KEY)
    if loaded_from is None:
        raise BadLake(f"Lake {path} is a Delta table that odradek load did not make; name another folder.")
    if loaded_from != source:
        raise BadLake(f"Lake {path} is loaded from {loaded_from}, not from {source}; name another folder.")


def _id_number(topic_id: Uuid) -> int:
    """Returns 63 of the id's 122 random bits, which tell two topics apart: a txn version is a signed 64-bit number."""
    return int.from_bytes(topic_id, "big") >> 65


@contextmanager
def _failing_as(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, DeltaError) as error:
        raise BadLake(f"{what}: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".") + "."


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
