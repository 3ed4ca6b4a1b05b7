"""odradek consume: records of topics to standard output, up to where they end now, or on and on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from odradek.app.commands.produce import unescaped
from odradek.app.failure import MISUNDERSTOOD, CommandFailed
from odradek.app.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, connected
from odradek.app.record_text import Formatter, json_lines, key_value_lines, raw_values, value_lines
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT64_MAX, MIB, TopicPartition
from odradek.client.cluster import Cluster
from odradek.client.config import READ_COMMITTED, READ_UNCOMMITTED
from odradek.client.fetch import Fetched, Fetcher
from odradek.client.offsets import EARLIEST, LATEST, list_offsets
from odradek.record.batch import Batch

POLL_MS = 1_000
PARTITION_FETCH_BYTES = 4 * MIB  # Few large answers rather than many small ones: nobody else shares this process.


class Format(StrEnum):
    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"
    RAW = "raw"


def consume(
    *,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            "-o",
            metavar="WHERE",
            help="beginning, end, an offset, a time, or -N: the last N of each partition.",
        ),
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, metavar="N", help="Only this one; repeat for more.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=0, metavar="N", help="Stop after so many.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", metavar="", help="Wait for more instead of stopping at the end.")
    ] = False,
    layout: Annotated[
        Format, typer.Option("--format", metavar="NAME", help="value, key-value, json or raw.")
    ] = Format.VALUE,
    key_separator: Annotated[
        str, typer.Option("--key-separator", "-k", metavar="TEXT", help="For --format key-value.", show_default="TAB")
    ] = "\\t",
    committed: Annotated[
        bool,
        typer.Option("--committed", metavar="", help="Leave out records of transactions that are open or aborted."),
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Write the records of topics to standard output.

    Stops at the end there is when it starts, unless told to --follow.
    Times are ISO 8601: 2026-11-21T14:00 is local, 2026-11-21T14:00Z is UTC.

    Examples:

    odradek consume flights -n 3 --format json

    odradek consume flights --from -10 --follow

    odradek consume flights --from 2026-11-21 --format raw > values.bin
    """
    settings = {
        "isolation_level": READ_COMMITTED if committed else READ_UNCOMMITTED,
        "max_partition_fetch_bytes": PARTITION_FETCH_BYTES,
    }
    with connected(bootstrap_server, **settings) as cluster:
        wanted = partitions_of(cluster, topics, partition)
        positions = starting_positions(cluster, wanted, start)
        until = None if follow else {at: end.offset for at, end in list_offsets(cluster, every(wanted, LATEST)).items()}
        fetcher = Fetcher(cluster, positions, until=until)
        write(fetcher, until, formatter(layout, key_separator), max_messages)


def formatter(layout: Format, key_separator: str) -> Formatter:
    match layout:
        case Format.KEY_VALUE:
            return key_value_lines(unescaped(key_separator))
        case Format.JSON:
            return json_lines
        case Format.RAW:
            return raw_values
        case Format.VALUE:
            return value_lines


def partitions_of(cluster: Cluster, topics: Sequence[str], only: Sequence[int] | None) -> list[TopicPartition]:
    """Every partition of the topics, or the ones asked for.  A topic that is not there is not waited for."""
    found = cluster.partitions(topics, timeout_ms=0)
    if not only:
        return found
    for topic in topics:
        count = sum(at.topic == topic for at in found)
        missing = [number for number in only if number >= count]
        if missing:
            raise CommandFailed(f"partition {missing[0]} is not there: topic {topic} has {count}, counted from 0")
    return [at for at in found if at.partition in only]


def every(partitions: Sequence[TopicPartition], value: int) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, value)


def starting_positions(cluster: Cluster, wanted: Sequence[TopicPartition], start: str) -> dict[TopicPartition, int]:
    """An offset for each partition."""
    text = start.strip().lower()
    if text in ("beginning", "earliest"):
        return offsets_at(cluster, wanted, EARLIEST)
    ends = offsets_at(cluster, wanted, LATEST)
    if text in ("end", "latest"):
        return ends
    try:
        offset = int(text)
    except ValueError:
        # Of a time after the last record there is no offset: what comes then comes at the end.
        found = offsets_at(cluster, wanted, milliseconds(start))
        return {at: ends[at] if found[at] < 0 else found[at] for at in wanted}
    starts = offsets_at(cluster, wanted, EARLIEST)
    if offset < 0:
        return {at: max(starts[at], ends[at] + offset) for at in wanted}
    for at in wanted:
        if not starts[at] <= offset <= ends[at]:
            raise CommandFailed(f"offset {offset} is not in {at}, which goes from {starts[at]} to {ends[at]}")
    return every(wanted, offset)


def offsets_at(cluster: Cluster, partitions: Sequence[TopicPartition], when: int) -> dict[TopicPartition, int]:
    return {at: listed.offset for at, listed in list_offsets(cluster, every(partitions, when)).items()}


def milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        message = (
            f"--from {text!r} is not understood: give beginning, end, an offset, -N, or a time like 2026-11-21T14:00"
        )
        raise CommandFailed(message, MISUNDERSTOOD) from None


def write(fetcher: Fetcher, until: Mapping[TopicPartition, int] | None, lines: Formatter, most: int | None) -> None:
    """What each answer of a broker brought, in order within each partition; for ever if there is no `until`."""
    out = sys.stdout.buffer
    left = INT64_MAX if most is None else most
    while left and not fetcher.is_done:
        for fetched in fetcher.poll(POLL_MS):
            end = INT64_MAX if until is None else until[fetched.partition]
            for batch in intact(fetched):
                # A batch may begin before the offset asked for, and reach beyond the end.
                chosen = lines(fetched.partition, batch, fetched.fetch_offset, end)[:left]
                left -= len(chosen)
                out.write(b"".join(chosen))
        out.flush()


def intact(fetched: Fetched) -> Iterator[Batch]:
    for batch in fetched.batches():
        if not batch.is_intact:
            where = f"{fetched.partition} at offset {batch.base_offset}"
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the checksum of the batch in {where} is wrong")
        yield batch
