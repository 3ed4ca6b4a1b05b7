"""odradek produce: write lines of standard input or a file to a topic as records."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from odradek.app.cli.cli_options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, connected
from odradek.app.cli.partition_arguments import no_such_partition, topic_name
from odradek.app.cli.record_text import LineRecord, NotARecord, parse_json, parse_plain
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.app.terminal.lines import lines_of
from odradek.app.terminal.output import plural
from odradek.app.terminal.progress_line import Progress, shown_progress
from odradek.client.connection.client_errors import ErrorResponse
from odradek.client.producer.delivery import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from odradek.client.producer.idempotence import idempotent
from odradek.client.producer.producer import Producer
from odradek.record.compression import Codec

CREATED_MS_MAX = 5_000  # A topic still missing then is not being created.
PAUSE_MS = 20  # After this long without a line, send the pending records.


class CodecName(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


ACKS = {Acks.NONE: ACKS_NONE, Acks.LEADER: ACKS_LEADER, Acks.ALL: ACKS_ALL}


def produce(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", metavar="TEXT", help=r"Text that ends the key, e.g. '\t' or ':'."),
    ] = None,
    headers: Annotated[
        bool,
        typer.Option("--headers", metavar="", help="Read headers: lines begin with name:value,name:value and a TAB."),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", metavar="", help='Read JSON lines: {"key", "value", "headers", "timestamp", "partition"}.'
        ),
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="Write to this partition.", show_default="by key"),
    ] = None,
    by_key: Annotated[
        bool, typer.Option("--by-key", metavar="", help="Choose the partition by key even if a JSON line names one.")
    ] = False,
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="Write this value as null (a tombstone).")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-i", metavar="PATH", help="Read lines from this file.", show_default="standard input"),
    ] = None,
    codec: Annotated[
        CodecName, typer.Option("--codec", "-z", metavar="NAME", help="Compress with none, gzip, snappy, lz4 or zstd.")
    ] = CodecName.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", metavar="0|1|all", help="Acknowledgments that the write requires.")
    ] = Acks.ALL,
    repeatable: Annotated[
        bool,
        typer.Option("--no-idempotence", metavar="", help="Disable idempotence; a lost response may cause duplicates."),
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Write each line as one record to a topic.

    Examples:

    seq 10 | odradek produce numbers

    odradek produce people --key-separator : <<< 'ada:{"born": 1815}'

    odradek consume flights --format json | odradek produce copy --json
    """
    if as_json and (key_separator is not None or headers):
        raise CommandFailed("--json lines contain the key and headers: omit --key-separator and --headers", USAGE_ERROR)
    topic = topic_name(topic)
    parse = line_parser(key_separator, headers, as_json, null)
    with (
        connected(bootstrap_server, command_config) as cluster,
        open_input(file) as (fd, size),
        shown_progress(topic, size) as progress,
    ):
        cluster.topic(topic, timeout_ms=CREATED_MS_MAX, may_create=True)
        is_once = acks is Acks.ALL and not repeatable
        sequences = idempotent(cluster) if is_once else None
        producer = Producer(cluster, acks=ACKS[acks], codec=Codec[codec.name], sequences=sequences)
        count = producer.partitions(topic)
        if partition is not None and partition >= count:
            raise no_such_partition(topic, partition, count)
        target = Target(topic, count, partition, by_key)
        send_lines(producer, target, count_lines(lines_of(fd, PAUSE_MS, producer.flush), progress), parse)


class Target(NamedTuple):
    """Topic and partition of the records."""

    topic: str
    partitions: int
    partition: int | None
    by_key: bool

    def partition_of(self, record: LineRecord) -> int | None:
        """Return the line's own partition, or the command's; None means by key."""
        if record.partition is None or self.by_key:
            return self.partition
        if record.partition >= self.partitions:
            has = f"topic {self.topic} has {self.partitions}, numbered from 0"
            raise NotARecord(f"names partition {record.partition}, but {has}; use --by-key to choose by key")
        return record.partition


def count_lines(lines: Iterator[bytes], progress: Progress) -> Iterator[bytes]:
    for line in lines:
        yield line
        progress.add(1, len(line) + 1)


def send_lines(
    producer: Producer, target: Target, lines: Iterator[bytes], parse: Callable[[bytes], LineRecord]
) -> None:
    """Send lines as records. An invalid line ends this, after all lines before it are written."""
    number = 0
    try:
        for line in lines:
            number += 1
            record = parse(line)
            producer.send(
                target.topic,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp=record.timestamp,
                partition=target.partition_of(record),
            )
        producer.flush()
    except NotARecord as error:
        producer.flush()
        raise CommandFailed(f"line {number} {error} ({number - 1:,} written before it)") from None
    except ErrorResponse as error:
        raise CommandFailed(f"{error}; {plural(producer.records_written, 'record')} confirmed") from error


def line_parser(
    key_separator: str | None, has_headers: bool, as_json: bool, null: str | None
) -> Callable[[bytes], LineRecord]:
    if as_json:
        return parse_json
    separator = None if key_separator is None else unescaped(key_separator)
    if separator == b"":
        raise CommandFailed("--key-separator must not be empty", USAGE_ERROR)
    marker = None if null is None else null.encode()

    def parse(line: bytes) -> LineRecord:
        record = parse_plain(line, separator, has_headers)
        return LineRecord(None, record.key, record.headers) if record.value == marker else record

    return parse


def unescaped(text: str) -> bytes:
    r"""Unescape \t, \0 and \\, because shells make it hard to type a TAB."""
    return text.replace("\\\\", "\0\0").replace("\\t", "\t").replace("\\0", "\0").replace("\0\0", "\\").encode()


@contextmanager
def open_input(file: Path | None) -> Iterator[tuple[int, int | None]]:
    """Open the input. Yield its file descriptor and, for a regular file, its size."""
    if file is None:
        if sys.stdin.isatty() and sys.stderr.isatty():
            sys.stderr.write("Enter one record per line; Ctrl-D ends the input.\n")
        yield sys.stdin.fileno(), None
        return
    if file.is_dir():
        raise CommandFailed(f"{file} is a directory: --file needs a file")
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd, os.fstat(fd).st_size or None
    finally:
        os.close(fd)
