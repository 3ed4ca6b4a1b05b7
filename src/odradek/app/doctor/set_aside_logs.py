"""Check of quarantined files in a broker's log directories, if they are accessible from here.

The broker returns the names of its log directories. meta.properties shows whether a local directory of that name
belongs to the broker.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.app.doctor.described_cluster import Identity
from odradek.app.doctor.findings import Finding, listed, note, ok, wrong
from odradek.app.terminal.output import plural, size_text, time_text
from odradek.base.errors import ErrorCode
from odradek.base.units import INT64_MAX
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError
from odradek.log.files import log_file_names as names
from odradek.log.files.disk import DiskFailed, RealDisk
from odradek.log.files.meta_properties import WrongDirectory, identity
from odradek.log.segment.checkpoints import BadCheckpoint, read_damages, read_uncleanable
from odradek.log.segment.damage import KnownDamage
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from odradek.wire.schema.api_keys import ApiKey

CHECK = "log dirs"
OFFLINE_ADVICE = "Check the broker's log for the disk failure, repair the disk, and restart the broker."
DAMAGE_ADVICE = (
    "Consumers get CORRUPT_MESSAGE there: seek past it.  Or stop the broker, and restore the file from a "
    "copy, or truncate the log with odradek log verify --repair.  Retention deletes the damage with its segment."
)
ADVICE = "Inspect these files with odradek log dump, and delete what you do not need: the broker never deletes them."


def examine_log_dirs(broker: Identity | None, cluster_id: str | None) -> Iterable[Finding]:
    """Examine the broker's log directories, and silently skip those not on this machine."""
    for directory in log_dirs(broker.configs) if broker is not None else ():
        assert broker is not None
        try:
            if identity(RealDisk(), directory) == (broker.node, cluster_id):
                yield finding(directory)
                yield from known_damage(directory)
                yield from uncleanable(directory)
        except (DiskFailed, WrongDirectory):
            continue  # Another broker's directory, or not readable.


def known_damage(directory: str) -> Iterable[Finding]:
    """Report known damage in the logs of a directory. Raise DiskFailed."""
    try:
        damages = read_damages(RealDisk(), f"{directory}/{names.DAMAGES}")
    except BadCheckpoint:
        return  # The broker will detect the damage again.
    if damages:
        places = listed([damage_text(one) for one in damages])
        yield wrong(CHECK, f"{plural(len(damages), 'damaged place')} in {directory}: {places}", DAMAGE_ADVICE)


def damage_text(damage: KnownDamage) -> str:
    """Format where and since when a log is damaged, and the offset where a consumer can resume."""
    where = f"{damage.partition} at byte {damage.position} of {damage.file} since {time_text(damage.since_ms)}"
    resume = f", readable again from offset {damage.following}" if damage.following < INT64_MAX else ""
    return f"{where} ({damage.why}{resume})"


def uncleanable(directory: str) -> Iterable[Finding]:
    """Report logs of a directory that the broker cannot compact. Raise DiskFailed."""
    try:
        reasons = read_uncleanable(RealDisk(), f"{directory}/{names.UNCLEANABLE}")
    except BadCheckpoint:
        return  # Being written, or lost in a power failure; it describes the broker's previous run.
    if reasons:
        message = f"{plural(len(reasons), 'log')} in {directory} cannot be compacted: {listed(list(reasons))}"
        yield note(
            CHECK, message, f"Check the broker's log; the reason for the first is: {next(iter(reasons.values()))}"
        )


def examine_offline_dirs(connection: Connection, node: int) -> Iterable[Finding]:
    """Report the broker's offline log directories, or nothing if the broker does not return them."""
    if ApiKey.DESCRIBE_LOG_DIRS not in connection.apis:
        return
    try:
        response = connection.call(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
    except ClientError:
        return
    offline = [each.log_dir for each in response.results if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR]
    if offline:
        yield wrong(CHECK, f"offline on broker {node}, with all of its partitions: {listed(offline)}", OFFLINE_ADVICE)


def log_dirs(configs: dict[str, str]) -> list[str]:
    text = configs.get("log.dirs") or configs.get("log.dir") or ""
    return [each for each in map(str.strip, text.split(",")) if each]


def finding(directory: str) -> Finding:
    """Create the finding for one directory. Raise DiskFailed."""
    disk = RealDisk()
    strays, asides, size = 0, 0, 0
    for folder in disk.entries(directory):
        if folder.size >= 0:
            continue
        is_stray = names.mark(folder.name) == names.STRAY
        strays += is_stray
        for file in disk.entries(f"{directory}/{folder.name}"):
            parsed = names.parse_segment_file(file.name)
            is_aside = parsed is not None and parsed[2].startswith(names.ASIDE)
            asides += is_aside and not is_stray
            size += max(file.size, 0) if is_stray or is_aside else 0
    if not strays and not asides:
        return ok(CHECK, f"no files are set aside in {directory}")
    found = []
    if strays:
        found.append(f"{plural(strays, 'log')} of partitions that are not assigned to the broker (*-stray)")
    if asides:
        found.append(f"{plural(asides, 'file')} with data truncated from logs (*.aside)")
    return note(CHECK, f"{' and '.join(found)}, {size_text(size)}, set aside in {directory}", ADVICE)
