"""meta.properties: which cluster and which broker a data directory belongs to.  A Java properties file.

version=0 (with ZooKeeper, and ours): broker.id, cluster.id.   version=1 (KRaft): node.id, cluster.id, directory.id.
A directory keeps the version and the other keys it came with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from odradek.base.units import SECOND_MS, BrokerId, TimestampMs
from odradek.log.disk import Disk, read_file, replace_file
from odradek.log.names import META_PROPERTIES

FILE_BYTES_MAX = 64 * 1024
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LINE = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:\s]?\s*(.*)", re.DOTALL)


class WrongDirectory(ValueError):
    """The data directory is another broker's or another cluster's, or its meta.properties can't be read."""


def identity(disk: Disk, directory: str) -> tuple[BrokerId | None, str | None]:
    """Reads which broker and which cluster a data directory belongs to; None for what it does not say."""
    data = read_file(disk, f"{directory}/{META_PROPERTIES}", FILE_BYTES_MAX)
    properties = parse(data) if data is not None else {}
    number = properties.get("broker.id", properties.get("node.id", ""))
    return (BrokerId(int(number)) if number.isascii() and number.isdigit() else None), properties.get("cluster.id")


def claim(disk: Disk, directory: str, now_ms: TimestampMs, broker_id: BrokerId, cluster_id: str | None) -> str | None:
    """Checks the directory's identity against ours, and writes it into a new directory.

    Returns the cluster id to go by; None if neither the directory nor the caller has one yet.  Raises WrongDirectory.
    """
    path = f"{directory}/{META_PROPERTIES}"
    data = read_file(disk, path, FILE_BYTES_MAX)
    properties = parse(data) if data is not None else {}
    version = properties.get("version", "0")
    if version not in ("0", "1"):
        raise WrongDirectory(f"{path} has version {version}; only 0 and 1 are known")
    id_key = "broker.id" if version == "0" else "node.id"
    _check(path, id_key, properties.get(id_key), str(broker_id))
    _check(path, "cluster.id", properties.get("cluster.id"), cluster_id)
    complete = {"version": version, id_key: str(broker_id), **properties}
    if cluster_id is not None:
        complete["cluster.id"] = cluster_id
    if complete != properties:
        replace_file(disk, path, render(complete, now_ms))
        disk.sync_directory(directory)
    return complete.get("cluster.id")


def parse(data: bytes) -> dict[str, str]:
    """Parses Java properties.  Raises WrongDirectory for bytes that are no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise WrongDirectory(f"{META_PROPERTIES}: {error}") from None
    properties = {}
    for line in map(str.strip, text.splitlines()):
        if line and line[0] not in "#!" and (match := _LINE.fullmatch(line)):
            properties[_unescape(match[1])] = _unescape(match[2])
    return properties


def render(properties: Mapping[str, str], now_ms: TimestampMs) -> bytes:
    """Renders properties as Java's Properties.store does, an empty comment and the date first."""
    date = datetime.fromtimestamp(now_ms / SECOND_MS, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    lines = ["#", f"#{date}", *(f"{_escape(key)}={_escape(value)}" for key, value in properties.items())]
    return "".join(f"{line}\n" for line in lines).encode()


def _check(path: str, key: str, stored: str | None, ours: str | None) -> None:
    if stored is not None and ours is not None and stored != ours:
        raise WrongDirectory(
            f"{path} says {key}={stored}, this broker has {key}={ours}: name its own data directory, or use that {key}"
        )


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) > 1 else _ESCAPES.get(m[1], m[1]), text)


def _escape(text: str) -> str:
    return re.sub(r"([\\=:#! ])", r"\\\1", text)
