"""odradek log verify: read and verify whole logs, and optionally repair them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from odradek.app.inspect.repair import repair as repair_logs
from odradek.app.inspect.verify import Counts, Folder, Said, write_down
from odradek.app.inspect.verify import verify as verify_log
from odradek.app.terminal.command_failed import FAILED, CommandFailed
from odradek.app.terminal.output import plural, print_json_line, size_text
from odradek.base.units import TopicPartition
from odradek.log.files.disk_failures import DirectoryInUse, SegmentMissing
from odradek.log.files.log_file_names import META_PROPERTIES, parse_partition
from odradek.log.segment.checkpoints import BadCheckpoint
from odradek.log.segment.damage import KnownDamage

DEFAULT_DIRECTORY = Path("odradek-data")


def verify(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="A data directory, or a partition's in it.")
    ] = DEFAULT_DIRECTORY,
    repair: Annotated[
        bool, typer.Option("--repair", metavar="", help="Cut logs where they are damaged.  Of a stopped broker only.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="One JSON object a line.")] = False,
) -> int:
    """Read whole logs and say what is wrong with them: checksums, offsets, indexes, missing segments.

    Needs no broker, and leaves the logs as they are; beside one that runs,
    what it has not synced yet is left out.  Damage that is found while none
    runs is not served by the next.  The exit status is 1 if something is wrong.

    --repair cuts each log that has a fault before its first damage, as
    recovery does: what is cut off is set aside as .log.aside files beside it.
    The exit status is 0 then, if nothing is wrong any more.

    Example: odradek log verify odradek-data
    """
    if not path.is_dir():
        raise CommandFailed(f"{path} is no directory: give a data directory, or a partition's in it")
    try:
        return verify_all(path, repair, as_json)
    except (BadCheckpoint, DirectoryInUse, SegmentMissing) as error:
        raise CommandFailed(str(error)) from None


def verify_all(path: Path, repair: bool, as_json: bool) -> int:
    is_partition = parse_partition(path.absolute().name) is not None
    folder = Folder.at(path.absolute().parent if is_partition else path)
    partitions = [folder.path / path.absolute().name] if is_partition else folder.partitions()
    if not partitions and not (path / META_PROPERTIES).exists():
        raise CommandFailed(f"{path} holds no log: give a data directory, or a partition's in it")
    counts = Counts()
    damages: list[KnownDamage] = []
    faulty = faults_of(folder, partitions, counts, as_json, damages)
    if not as_json:
        read = f"{plural(counts.segments, 'segment')}, {plural(counts.batches, 'batch', 'batches')}"
        verdict = f"{plural(sum(faulty.values()), 'fault')}" if faulty else "nothing is wrong"
        sys.stdout.write(f"{plural(counts.logs, 'log')}, {read}, {size_text(counts.size)}: {verdict}\n")
    if not repair:
        write_down(folder, damages)
    if not repair or not faulty:
        return FAILED if faulty else 0
    for partition, aside in repair_logs(folder, list(faulty)):
        write_said(Said(partition, "repaired" if aside is None else f"repaired, {aside}", False), as_json)
    again = [folder.path / str(partition) for partition in faulty]
    return FAILED if faults_of(Folder.at(folder.path), again, Counts(), as_json, damages) else 0


def faults_of(
    folder: Folder, partitions: Iterable[Path], counts: Counts, as_json: bool, damages: list[KnownDamage]
) -> Counter[TopicPartition]:
    """Count the faults of each partition that has any, print all sentences, and add to `damages`."""
    faulty: Counter[TopicPartition] = Counter()
    for partition in partitions:
        try:
            for said in verify_log(folder, partition, counts):
                write_said(said, as_json)
                if said.is_fault:
                    faulty[said.partition] += 1
                if said.damage is not None:
                    damages.append(said.damage)
        except OSError:
            if partition.exists():  # Otherwise it was deleted concurrently.
                raise
    return faulty


def write_said(said: Said, as_json: bool) -> None:
    if as_json:
        kind = "fault" if said.is_fault else "note"
        print_json_line({"topic": said.partition.topic, "partition": said.partition.partition, kind: said.says})
    else:
        sys.stdout.write(f"{said.partition}: {said.says}\n")
