"""meta.properties: the cluster and the broker that own a data directory, as a Java properties file.

version=0 (with ZooKeeper, and Odradek's): broker.id, cluster.id.   version=1 (KRaft): node.id, cluster.id,
directory.id.

A directory keeps its original version and its other keys.  Kafka before 2.4 has no cluster.id.

A truncated file may name another broker: broker.id=1001 becomes broker.id=100.  So a file is valid only if its last
line is terminated and no key is missing.  Odradek writes the broker's id in the last line.  Truncation at a line's end
and flipped bits are detected by a second record, odradek-identity, and by the metadata (app/serve/broker_identity.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from odradek.base.units import INT32_MAX, SECOND_MS, BrokerId, TimestampMs
from odradek.log.files.disk import Disk, DiskFailed, read_file, replace_file
from odradek.log.files.log_file_names import BOOT, IDENTITY, META_PROPERTIES, PARTITION_METADATA, parse_partition

FILE_BYTES_MAX = 64 * 1024
_ID_KEYS = {"0": "broker.id", "1": "node.id"}
_CLUSTER = "cluster.id"
_ADVICE = "restore it from a copy, or rewrite it with a newline after the last line"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LINE = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:\s]?\s*(.*)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")  # Java's line ends; str.splitlines recognizes more.
_SPECIAL = re.compile(r"[\\=:#! ]|[^ -~]")


class WrongDirectory(ValueError):
    """The data directory belongs to another broker or cluster, or its meta.properties is unreadable."""


def identity(disk: Disk, directory: str) -> tuple[BrokerId | None, str | None]:
    """Return the broker and the cluster that own a data directory; None for a missing value.

    Raise WrongDirectory for a damaged meta.properties.
    """
    properties = _read(disk, directory)
    if properties is None:
        return None, None
    return BrokerId(int(properties[_ID_KEYS[properties["version"]]])), properties.get(_CLUSTER)


def noted_identity(disk: Disk, directory: str) -> tuple[BrokerId, str] | None:
    """Return the content of odradek-identity; None without a whole file, as in a directory new to Odradek."""
    data = read_file(disk, f"{directory}/{IDENTITY}", FILE_BYTES_MAX)
    noted = parse(data) if data is not None and data.endswith(b"\n") else {}
    number, cluster_id = noted.get("broker.id", ""), noted.get(_CLUSTER)
    return (BrokerId(int(number)), cluster_id) if _is_id(number) and cluster_id else None


def check_identity(disk: Disk, directory: str, broker_id: BrokerId | None, cluster_id: str | None) -> None:
    """Raise WrongDirectory if another broker or cluster owns the directory; None matches any."""
    properties = _read(disk, directory)
    if properties is not None:
        path, id_key = f"{directory}/{META_PROPERTIES}", _ID_KEYS[properties["version"]]
        _check(path, id_key, properties[id_key], None if broker_id is None else str(broker_id))
        _check(path, _CLUSTER, properties.get(_CLUSTER), cluster_id)


def claim(disk: Disk, directory: str, now_ms: TimestampMs, broker_id: BrokerId, cluster_id: str | None) -> str | None:
    """Check the directory's identity against this broker's, and write it into a new directory.

    Return the cluster id to use; None if neither the directory nor the caller has one yet.  Raise WrongDirectory on
    a mismatch.
    """
    check_identity(disk, directory, broker_id, cluster_id)
    properties = _read(disk, directory) or {"version": "0"}
    complete = properties | {_ID_KEYS[properties["version"]]: str(broker_id)}
    if cluster_id is not None:
        complete[_CLUSTER] = cluster_id
    if complete != properties:
        replace_file(disk, f"{directory}/{META_PROPERTIES}", render(_in_order(complete), now_ms))
        disk.sync_directory(directory)
    cluster_id = complete.get(_CLUSTER)
    if cluster_id is not None and noted_identity(disk, directory) != (broker_id, cluster_id):
        note = f"broker.id={broker_id}\n{_CLUSTER}={_escape(cluster_id)}\n"
        with suppress(DiskFailed):  # A missing second record is no reason to refuse to serve the logs.
            replace_file(disk, f"{directory}/{IDENTITY}", note.encode())
            disk.sync_directory(directory)
    return cluster_id


def parse(data: bytes) -> dict[str, str]:
    """Parse Java properties, in which every byte is a character."""
    properties = {}
    for line in map(str.strip, _LINE_END.split(data.decode("latin-1"))):
        if line and line[0] not in "#!" and (match := _LINE.fullmatch(line)):
            properties[_unescape(match[1])] = _unescape(match[2])
    return properties


def render(properties: Mapping[str, str], now_ms: TimestampMs) -> bytes:
    """Format properties as Java's Properties.store does, with an empty comment and the date first."""
    date = datetime.fromtimestamp(now_ms / SECOND_MS, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    lines = ["#", f"#{date}", *(f"{_escape(key)}={_escape(value)}" for key, value in properties.items())]
    return "".join(f"{line}\n" for line in lines).encode()


def _in_order(properties: Mapping[str, str]) -> dict[str, str]:
    """Put the broker's id last: a file without it is invalid, so every truncated file is."""
    id_key = _ID_KEYS[properties["version"]]
    first = {_CLUSTER: properties[_CLUSTER]} if _CLUSTER in properties else {}
    rest = {key: value for key, value in properties.items() if key not in (id_key, _CLUSTER)}
    ordered = {**first, **rest, id_key: properties[id_key]}
    assert len(ordered) == len(properties), "an order loses no property"
    return ordered


def _read(disk: Disk, directory: str) -> dict[str, str] | None:
    """Return the file's properties, with a valid version and broker id; None without a file."""
    path = f"{directory}/{META_PROPERTIES}"
    data = read_file(disk, path, FILE_BYTES_MAX)
    if data is None:
        return None
    properties = parse(data)
    version = properties.get("version")
    if version is not None and version not in _ID_KEYS:
        raise WrongDirectory(f"{path} has unsupported version {version[:20]}; supported versions: 0 and 1")
    if not data.endswith((b"\n", b"\r")):
        raise _not_whole(path, "ends within a line" if data else "is empty")
    if version is None:
        raise _not_whole(path, "has no version")
    id_key = _ID_KEYS[version]
    if id_key not in properties:
        raise _not_whole(path, f"has no {id_key}")
    if not _is_id(properties[id_key]):
        raise WrongDirectory(f"{path} has {id_key}={properties[id_key][:20]!a}, not a valid broker id: {_ADVICE}")
    if not properties.get(_CLUSTER) and (version == "1" or _had_cluster(disk, directory)):
        raise _not_whole(path, f"has no {_CLUSTER}")
    _check_noted(disk, directory, id_key, properties)
    return properties


def _not_whole(path: str, why: str) -> WrongDirectory:
    return WrongDirectory(f"{path} {why}, so it is incomplete and may name another broker: {_ADVICE}")


def _is_id(number: str) -> bool:
    return number.isascii() and number.isdigit() and int(number) <= INT32_MAX


def _had_cluster(disk: Disk, directory: str) -> bool:
    """Return whether an earlier owner wrote a cluster.id: Odradek, or Kafka since 2.8 (topic ids)."""
    if any(read_file(disk, f"{directory}/{name}", FILE_BYTES_MAX) is not None for name in (BOOT, IDENTITY)):
        return True
    partitions = [entry.name for entry in disk.entries(directory) if entry.size < 0 and parse_partition(entry.name)]
    return any(entry.name == PARTITION_METADATA for name in partitions for entry in disk.entries(f"{directory}/{name}"))


def _check_noted(disk: Disk, directory: str, id_key: str, properties: Mapping[str, str]) -> None:
    noted = noted_identity(disk, directory)
    if noted is not None:
        _check_same(directory, id_key, properties[id_key], str(noted[0]))
        _check_same(directory, _CLUSTER, properties.get(_CLUSTER), noted[1])


def _check_same(directory: str, key: str, stored: str | None, noted: str) -> None:
    if stored != noted:
        raise WrongDirectory(
            f"{directory}/{META_PROPERTIES} has {key}={stored}, but the directory was last used with {key}={noted}: "
            f"restore the right {META_PROPERTIES}, or delete {IDENTITY} there if the change was intended"
        )


def _check(path: str, key: str, stored: str | None, expected: str | None) -> None:
    if stored is not None and expected is not None and stored != expected:
        raise WrongDirectory(
            f"{path} has {key}={stored}, but this broker has {key}={expected}: correct log.dirs, or use {key}={stored}"
        )


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) > 1 else _ESCAPES.get(m[1], m[1]), text)


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda m: f"\\{m[0]}" if m[0] <= "~" and m[0] >= " " else f"\\u{ord(m[0]):04x}", text)
