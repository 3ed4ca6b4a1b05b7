"""odradek log verify: read and verify whole logs, and optionally repair them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from odradek.app.inspect.repair import repair as repair_logs
from odradek.app.inspect.verify import Counts, Folder, LogFinding, record_damages
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
        Path, typer.Argument(metavar="DIR", help="Data directory, or a partition directory in it.")
    ] = DEFAULT_DIRECTORY,
    repair: Annotated[
        bool, typer.Option("--repair", metavar="", help="Truncate damaged logs of a stopped broker.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object per line.")] = False,
) -> int:
    """Verify logs: checksums, offsets, indexes, missing segments.

    Needs no broker, and does not change the logs.  While a broker runs, data that
    it has not synced yet is not checked.  Damage found while no broker runs is not
    served after the next start.  The exit status is 1 if there are faults.

    --repair truncates each faulty log before its first damage, as recovery does,
    and keeps the removed data in .log.aside files next to the log.  The exit
    status is then 0 if no faults remain.

    Example: odradek log verify odradek-data
    """
    if not path.is_dir():
        raise CommandFailed(f"{path} is not a directory: name a data directory, or a partition directory in it")
    try:
        return verify_all(path, repair, as_json)
    except (BadCheckpoint, DirectoryInUse, SegmentMissing) as error:
        raise CommandFailed(str(error)) from None


def verify_all(path: Path, repair: bool, as_json: bool) -> int:
    is_partition = parse_partition(path.absolute().name) is not None
    folder = Folder.at(path.absolute().parent if is_partition else path)
    partitions = [folder.path / path.absolute().name] if is_partition else folder.partitions()
    if not partitions and not (path / META_PROPERTIES).exists():
        raise CommandFailed(f"{path} contains no log: name a data directory, or a partition directory in it")
    counts = Counts()
    damages: list[KnownDamage] = []
    faulty = faults_of(folder, partitions, counts, as_json, damages)
    if not as_json:
        read = f"{plural(counts.segments, 'segment')}, {plural(counts.batches, 'batch', 'batches')}"
        verdict = f"{plural(sum(faulty.values()), 'fault')}" if faulty else "no faults"
        sys.stdout.write(f"{plural(counts.logs, 'log')}, {read}, {size_text(counts.size)}: {verdict}\n")
    if not repair:
        record_damages(folder, damages)
    if not repair or not faulty:
        return FAILED if faulty else 0
    for partition, aside in repair_logs(folder, list(faulty)):
        write_finding(LogFinding(partition, "repaired" if aside is None else f"repaired, {aside}", False), as_json)
    repaired = [folder.path / str(partition) for partition in faulty]
    return FAILED if faults_of(Folder.at(folder.path), repaired, Counts(), as_json, damages) else 0


def faults_of(
    folder: Folder, partitions: Iterable[Path], counts: Counts, as_json: bool, damages: list[KnownDamage]
) -> Counter[TopicPartition]:
    """Count the faults of each partition that has any, print all sentences, and add to `damages`."""
    faulty: Counter[TopicPartition] = Counter()
    for partition in partitions:
        try:
            for finding in verify_log(folder, partition, counts):
                write_finding(finding, as_json)
                if finding.is_fault:
                    faulty[finding.partition] += 1
                if finding.damage is not None:
                    damages.append(finding.damage)
        except OSError:
            if partition.exists():  # Otherwise it was deleted concurrently.
                raise
    return faulty


def write_finding(finding: LogFinding, as_json: bool) -> None:
    if as_json:
        kind = "fault" if finding.is_fault else "note"
        print_json_line(
            {"topic": finding.partition.topic, "partition": finding.partition.partition, kind: finding.message}
        )
    else:
        sys.stdout.write(f"{finding.partition}: {finding.message}\n")
