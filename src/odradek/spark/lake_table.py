"""Opening and creation of a lake's table, with checks that it suits the loader.

A table is rejected if the loader did not create it, or would write wrong rows to it.
"""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from odradek.spark.lake_location import LOG, Place
from odradek.spark.lake_reasons import BadLake, failing_as
from odradek.spark.source_options import Columns, Selection, Subscribe, SubscribePattern
from odradek.spark.source_schema import arrow_schema, schema_of

SOURCE_KEY = "odradek.source"
CONSTRAINTS = "delta.constraints."
COLUMN_MAPPING = "delta.columnMapping.mode"
SCHEMA = arrow_schema(schema_of(Columns(headers=True)))


def open_table(place: Place, selection: Selection) -> DeltaTable:
    """Open the table, or create it in a new or empty place. Raise BadLake."""
    source = source_text(selection)
    if place.folder is not None and place.folder.exists() and not place.folder.is_dir():
        raise BadLake(f"Lake {place} is a file; it must be a directory.")
    with failing_as(f"Failed to open lake {place}"):
        if not is_table(place):
            _create_table(place, source)
        table = table_at(place)
    _refuse_other_source(place, table, source)
    check_writable(place, table)
    return table


def table_at(place: Place) -> DeltaTable:
    return DeltaTable(place.uri, storage_options=dict(place.storage) or None)


def is_table(place: Place) -> bool:
    return bool(DeltaTable.is_deltatable(place.uri, dict(place.storage) or None))


def vacuum(place: Place, hours: int, *, execute: bool) -> list[str]:
    """Remove files not in the newest version nor in a version of the last `hours`. Return their names.

    These include the files of an uncommitted batch, if they are that old. Raise BadLake.
    """
    with failing_as(f"Failed to read lake {place}"):
        if not is_table(place):
            raise BadLake(f"Lake {place} does not exist.")
        table = table_at(place)
    if SOURCE_KEY not in table.metadata().configuration:
        raise BadLake(f"{place} is a Delta table that odradek load did not create.")
    with failing_as(f"Failed to vacuum lake {place}"):
        return sorted(table.vacuum(hours, dry_run=not execute, enforce_retention_duration=False, full=True))


def source_text(selection: Selection) -> str:
    """Return the selection as stored in the table's configuration."""
    match selection:
        case Subscribe(topics):
            return json.dumps({"topics": sorted(topics)})
        case SubscribePattern(pattern):
            return json.dumps({"pattern": pattern})
        case _:
            raise BadLake("A lake can only be loaded from whole topics; select them by name or pattern.")


def check_writable(place: Place, table: DeltaTable) -> None:
    """Raise BadLake if another writer changed the table so that the loader's rows would be wrong."""
    metadata, columns = table.metadata(), Schema.from_arrow(SCHEMA).fields
    present = {column.name: column for column in table.schema().fields}
    for column in columns:
        found = present.pop(column.name, None)
        if found is None or found.type != column.type:
            raise BadLake(f"Column {column.name!r} of lake {place} is missing or has another type.")
    if required := sorted(name for name, column in present.items() if not column.nullable):
        raise BadLake(f"Lake {place} requires column {required[0]!r}, which records do not have.")
    if metadata.partition_columns:
        raise BadLake(f"Lake {place} is partitioned, which the loader does not support.")
    if rules := sorted(name for name in metadata.configuration if name.startswith(CONSTRAINTS)):
        raise BadLake(f"Lake {place} has the constraint {rules[0]!r}, which the loader does not check; drop it.")
    if metadata.configuration.get(COLUMN_MAPPING, "none") != "none":
        raise BadLake(f"Lake {place} uses column mapping ({COLUMN_MAPPING}), which the loader does not support.")


def _create_table(place: Place, source: str) -> None:
    try:
        _refuse_other_content(place)
        if place.folder is not None:
            place.folder.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            place.uri,
            schema=Schema.from_arrow(SCHEMA),
            mode="ignore",
            description="Records of Kafka topics, loaded exactly once by odradek load",
            configuration={SOURCE_KEY: source},
            storage_options=dict(place.storage) or None,
            raise_if_key_not_exists=False,
        )
    except (BadLake, DeltaError):
        # Two loaders that start together create the same table; delta-rs lets one of them fail, or create it again on
        # top.
        if not is_table(place):
            raise


def _refuse_other_content(place: Place) -> None:
    log = place.below(LOG)
    if any(name.endswith(".json") for name in log.store().names()):
        raise BadLake(f"Lake {place} has a damaged Delta log: its first version is missing.")
    # A loader killed during the creation of the table leaves an empty _delta_log.
    if any(Path(name).name != LOG for name in place.store().names()):
        raise BadLake(f"Lake {place} contains files but is not a Delta table; use a new or empty directory.")


def _refuse_other_source(place: Place, table: DeltaTable, source: str) -> None:
    loaded_from = table.metadata().configuration.get(SOURCE_KEY)
    if loaded_from is None:
        raise BadLake(f"Lake {place} is a Delta table that odradek load did not create; use another directory.")
    if loaded_from != source:
        raise BadLake(f"Lake {place} is loaded from {loaded_from}, not from {source}; use another directory.")
