"""Data directories written by a real Apache Kafka, in tests/golden, with the records found by its clients."""

from __future__ import annotations

import json
import tarfile
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

GOLDEN = Path(__file__).parents[1] / "golden"

Record = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Found(NamedTuple):
    """The view of clients. A record is its offset, timestamp type, timestamp, key, value and headers."""

    records: Mapping[str, list[Record]]
    committed: Mapping[str, list[Record]]  # Records visible to read_committed.
    starts: Mapping[str, int]
    offsets: Mapping[str, Mapping[str, tuple[int, str]]]


def unpack(version: str, folder: Path) -> Path:
    """Unpack the data directory of a version into a folder; return its path."""
    with tarfile.open(GOLDEN / f"kafka-{version}" / "data.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "data"


def found_in(version: str) -> Found:
    content = json.loads((GOLDEN / f"kafka-{version}" / "found.json").read_text())
    return Found(
        {name: [_record(one) for one in records] for name, records in content["records"].items()},
        {name: [_record(one) for one in records] for name, records in content["committed"].items()},
        content["starts"],
        {
            group: {name: (one[0], one[1]) for name, one in offsets.items()}
            for group, offsets in content["offsets"].items()
        },
    )


def keep(version: str, data: Path, found: Found) -> None:
    """Pack a data directory, without its lock, and write the records found in it."""
    folder = GOLDEN / f"kafka-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "data.tar.xz", "w:xz") as archive:
        archive.add(data, "data", filter=_anonymous)
    content = {
        "records": {name: [_line(one) for one in records] for name, records in found.records.items()},
        "committed": {name: [_line(one) for one in records] for name, records in found.committed.items()},
        "starts": found.starts,
        "offsets": found.offsets,
    }
    (folder / "found.json").write_text(json.dumps(content) + "\n")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if member.name.endswith("/.lock"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _record(fields: list[object]) -> Record:
    offset, kind, timestamp, key, value, headers = fields
    assert isinstance(offset, int) and isinstance(kind, int) and isinstance(timestamp, int)
    assert isinstance(headers, list)
    return offset, kind, timestamp, _raw(key), _raw(value), tuple((name, _raw(text)) for name, text in headers)


def _line(record: Record) -> list[object]:
    offset, kind, timestamp, key, value, headers = record
    return [offset, kind, timestamp, _text(key), _text(value), [[name, _text(raw)] for name, raw in headers]]


def _raw(text: object) -> bytes | None:
    return b64decode(text) if isinstance(text, str) else None


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode()
