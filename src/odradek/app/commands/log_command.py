"""odradek log: inspect the files of a log directory, whether or not a broker uses it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from odradek.app.cli.record_text import readable, readable_headers
from odradek.app.commands.log_verify import verify
from odradek.app.inspect.dump import (
    Damage,
    DumpedBatch,
    batches,
    control_text,
    index_rows,
    log_files,
    records,
)
from odradek.app.terminal.command_failed import FAILED, CommandFailed
from odradek.app.terminal.output import plural, print_json_line, size_text, time_text
from odradek.log.files.log_file_names import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, parse_segment_file
from odradek.record.record_batch import Batch
from odradek.record.records import Record

app = typer.Typer(help="Inspect log files on disk.", no_args_is_help=True)

app.command("verify")(verify)

SHOWN_BYTES = 60
CHARACTER_BYTES_MAX = 4  # UTF-8's longest.


@app.callback()
def log() -> None:
    """Inspect log files on disk."""


@app.command("dump")
def dump(
    path: Annotated[
        Path,
        typer.Argument(metavar="DIR|FILE", help="Data directory, partition directory, or file.", show_default=False),
    ],
    with_records: Annotated[
        bool, typer.Option("--records", "-r", metavar="", help="Show the records of each batch.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object per line.")] = False,
) -> int:
    """Show the batches of .log files, or the entries of an .index, .timeindex or .txnindex file.

    Changes nothing, and needs no broker.  Marks torn and corrupt data, shows
    the rest, and then exits with 1.

    Example: odradek log dump odradek-data/flights-0 --records
    """
    if not path.exists():
        raise CommandFailed(f"{path} does not exist")
    files = log_files(path)
    if not files:
        raise CommandFailed(f"{path} contains no .log file: name a data directory, a partition directory, or a file")
    faults = 0
    for file in files:
        faults += dump_file(file, with_records, as_json)
    return FAILED if faults else 0


def dump_file(file: Path, with_records: bool, as_json: bool) -> int:
    """Dump one file. Return the number of its faults."""
    parsed = parse_segment_file(file.name)
    if parsed is None or parsed[1] not in (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX):
        raise CommandFailed(
            f"unsupported file {file}: name a 00000000000000000000.log, .index, .timeindex or .txnindex file"
        )
    if parsed[1] != LOG:
        return dump_index(file, as_json)
    return dump_log_json(file, with_records) if as_json else dump_log(file, with_records)


def dump_log(file: Path, with_records: bool) -> int:
    sys.stdout.write(f"{file}  {size_text(file.stat().st_size)}\n")
    faults = found = shown_records = 0
    for each in batches(file):
        if isinstance(each, Damage):
            faults += 1
            sys.stdout.write(
                f"  @{each.position}  TORN  {plural(each.left, 'byte')} without a valid batch: {each.why}\n"
            )
            continue
        found += 1
        faults += each.fault is not None
        shown_records += 0 if each.batch is None else each.batch.records_count
        sys.stdout.write(f"  {batch_line(each)}\n")
        if with_records and each.batch is not None and each.fault is None:
            faults += write_records(each.batch)
    sys.stdout.write(f"  {plural(found, 'batch', 'batches')}, {plural(shown_records, 'record')}{fault_text(faults)}\n")
    return faults


def fault_text(faults: int) -> str:
    return f", {plural(faults, 'fault')}" if faults else ""


def batch_line(each: DumpedBatch) -> str:
    """Format a batch as `@position  offsets  size  description`."""
    place, batch = each.place, each.batch
    words = [f"@{place.position}", f"{place.base_offset}..{place.last_offset}", f"{place.size} B"]
    if batch is None:
        words.append(f"format {place.magic}")
    else:
        words += [plural(batch.records_count, "record"), f"epoch {batch.leader_epoch}", codec_text(batch)]
        words += marks(batch)
    words.append(time_text(place.max_timestamp))
    if each.fault:
        words.append(f"CORRUPT: {each.fault}")
    return "  ".join(words)


def codec_text(batch: Batch) -> str:
    code = batch.attributes & 7
    return batch.codec.name.lower() if code <= 4 else f"codec {code}?"


def marks(batch: Batch) -> list[str]:
    found = []
    if batch.is_log_append_time:
        found.append("log append time")
    if batch.has_producer_id:
        found.append(f"producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}")
    if batch.is_transactional:
        found.append("transactional")
    if batch.is_control:
        found.append("control")
    return found


def write_records(batch: Batch) -> int:
    for record in records(batch):
        if isinstance(record, str):
            sys.stdout.write(f"    CORRUPT: {record}\n")
            return 1
        sys.stdout.write(f"    {record_line(batch, record)}\n")
    return 0


def record_line(batch: Batch, record: Record) -> str:
    where = f"{record.offset}  {time_text(record.timestamp)}"
    if batch.is_control:
        return f"{where}  {control_text(record)}"
    headers = "".join(f"  {name}={text_of(content)}" for name, content in record.headers)
    return f"{where}  {text_of(record.key)}: {text_of(record.value)}{headers}"


def text_of(content: bytes | None) -> str:
    """Return the beginning of the content, as text if it is UTF-8, without control characters."""
    if content is None:
        return "null"
    beginning = content[:SHOWN_BYTES]
    rest = f"...({plural(len(content), 'byte')})" if len(content) > SHOWN_BYTES else ""
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        is_cut_character = bool(rest) and error.start > SHOWN_BYTES - CHARACTER_BYTES_MAX
        if not is_cut_character:
            return f"0x{beginning.hex()}{rest}"
        text = beginning[: error.start].decode()
    return (text if text.isprintable() else ascii(text)[1:-1]) + rest


def dump_log_json(file: Path, with_records: bool) -> int:
    faults = 0
    for each in batches(file):
        shown = damage_json(each) if isinstance(each, Damage) else batch_json(each)
        faults += "fault" in shown
        print_json_line({"file": str(file), **shown})
        if with_records and isinstance(each, DumpedBatch) and each.batch is not None and each.fault is None:
            for record in records_json(each.batch):
                faults += "fault" in record
                print_json_line(record)
    return faults


def damage_json(damage: Damage) -> dict[str, object]:
    return {"position": damage.position, "bytes": damage.left, "fault": damage.why}


def batch_json(each: DumpedBatch) -> dict[str, object]:
    place, batch = each.place, each.batch
    shown: dict[str, object] = {
        "position": place.position,
        "bytes": place.size,
        "base_offset": place.base_offset,
        "last_offset": place.last_offset,
        "magic": place.magic,
        "max_timestamp": place.max_timestamp,
    }
    if batch is not None:
        shown |= {
            "records": batch.records_count,
            "leader_epoch": batch.leader_epoch,
            "codec": codec_text(batch),
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "log_append_time": batch.is_log_append_time,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "crc": batch.crc,
        }
    return shown | ({"fault": each.fault} if each.fault else {})


def records_json(batch: Batch) -> Iterator[dict[str, object]]:
    for record in records(batch):
        if isinstance(record, str):
            yield {"fault": record}
            continue
        shown: dict[str, object] = {"offset": record.offset, "timestamp": record.timestamp}
        if batch.is_control:
            shown["control"] = control_text(record)
        yield shown | readable("key", record.key) | readable("value", record.value) | readable_headers(record.headers)


def dump_index(file: Path, as_json: bool) -> int:
    names, rows = index_rows(file)
    if not as_json:
        sys.stdout.write(f"{file}  {size_text(file.stat().st_size)}\n")
    for row in rows:
        if as_json:
            shown: dict[str, object] = dict(zip(names, row.columns, strict=True))
            print_json_line({"file": str(file), **shown, **({"fault": row.fault} if row.fault else {})})
        else:
            cells = [f"{name} {cell_text(name, cell)}" for name, cell in zip(names, row.columns, strict=True)]
            sys.stdout.write("  " + "  ".join(cells) + (f"  CORRUPT: {row.fault}" if row.fault else "") + "\n")
    faults = sum(row.fault is not None for row in rows)
    if not as_json:
        count = plural(len(rows), "entry", "entries")
        sys.stdout.write(f"  {count}{fault_text(faults)}\n")
    return faults


def cell_text(name: str, value: int) -> str:
    return time_text(value) if name == "timestamp" else str(value)
