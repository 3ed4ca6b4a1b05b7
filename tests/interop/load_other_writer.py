"""Another writer to a table of `odradek load`: python load_other_writer.py TABLE TXN.

In each round it changes the table's properties and columns, merges files and deletes rows, until its standard input
ends. It prints its changes, a line of JSON for each. TXN contains the loaded offset of partition 0.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field, PrimitiveType

WORKS = ("set_property", "add_column", "compact", "delete")
PAUSE_SECONDS = 0.1
DELETED_ROWS = 5  # In one round, by their offsets in partition 0.


def main(path: str, loaded: str) -> None:
    reader = threading.Thread(target=sys.stdin.read, daemon=True)
    reader.start()
    number = 0
    while reader.is_alive():
        for work in (set_property, add_column, compact):
            attempt(work, path, number)
        if (DeltaTable(path).transaction_version(loaded) or 0) >= (number + 1) * DELETED_ROWS:
            attempt(delete, path, number)
        number += 1
        time.sleep(PAUSE_SECONDS)


def attempt(work: Callable[[DeltaTable, int], None], path: str, number: int) -> None:
    """Make the change, unless the loader was faster: then nothing has changed."""
    try:
        work(DeltaTable(path), number)
    except CommitFailedError:
        return
    print(json.dumps([work.__name__, number]), flush=True)


def set_property(table: DeltaTable, number: int) -> None:
    table.alter.set_table_properties({"delta.logRetentionDuration": f"interval {100 + number} days"})


def add_column(table: DeltaTable, number: int) -> None:
    table.alter.add_columns(Field(f"extra_{number}", PrimitiveType("string"), nullable=True))


def compact(table: DeltaTable, number: int) -> None:
    table.optimize.compact()


def delete(table: DeltaTable, number: int) -> None:
    first = number * DELETED_ROWS
    table.delete(f"partition = 0 AND offset >= {first} AND offset < {first + DELETED_ROWS}")


if __name__ == "__main__":
    main(*sys.argv[1:])
