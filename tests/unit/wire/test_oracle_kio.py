"""Comparison with kio, an independent implementation: it decodes our encoding, and encodes the same bytes."""

from __future__ import annotations

import datetime
import enum
import importlib
import pkgutil
import uuid
from dataclasses import fields, is_dataclass
from io import BytesIO
from types import ModuleType

import pytest
from wire_support import Maker, snake_case

from odradek.base.uuids import ZERO_UUID
from odradek.record.internal.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from odradek.wire.catalog import APIS, HEADERS
from odradek.wire.schema.compile import decode, encode
from odradek.wire.schema.schema import schema_of

pytestmark = pytest.mark.slow

kio_serial = pytest.importorskip("kio.serial")

ROUNDS = 20
CONSUMER_PROTOCOL = (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
OTHER_NAMES = {"generation_id": "generation_id_or_member_epoch"}  # TxnOffsetCommit renamed it.


def cases() -> list[tuple[type, int, ModuleType]]:
    found = []
    for cls in (each for pair in (*APIS.values(), HEADERS, CONSUMER_PROTOCOL) for each in pair):
        schema = schema_of(cls)
        name = (
            cls.__name__.removesuffix(str(schema.kind).title())
            if schema.kind in ("request", "response")
            else cls.__name__
        )
        try:
            package = importlib.import_module(f"kio.schema.{snake_case(name)}")
        except ModuleNotFoundError:
            continue
        versions = sorted(int(each.name[1:]) for each in pkgutil.iter_modules(package.__path__))
        found += [
            (cls, version, importlib.import_module(f"{package.__name__}.v{version}.{schema.kind}"))
            for version in versions
        ]
    return found


CASES = cases()


@pytest.mark.parametrize(("cls", "version", "module"), CASES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_kio_encodes_the_same_bytes(cls: type, version: int, module: ModuleType) -> None:
    theirs = getattr(module, cls.__name__)
    read, write = kio_serial.entity_reader(theirs), kio_serial.entity_writer(theirs)
    maker = Maker(f"kio {cls.__name__} {version}", is_tame=True, has_own_tags=False)
    for _ in range(ROUNDS):
        message = maker.message(cls, version)
        data = encode(message, version)
        entity, size = read(data, 0)
        assert size == len(data)
        assert_same(message, entity)
        buffer = BytesIO()
        write(buffer, entity)
        assert buffer.getvalue() == data
        assert decode(cls, version, data) == message


def test_kio_covers_most_messages() -> None:
    """It lacks only newer versions, and those older than Kafka 4."""
    ours = {(cls, version) for pair in APIS.values() for cls in pair for version in schema_of(cls).versions}
    assert len({(cls, version) for cls, version, _ in CASES} & ours) > len(ours) * 3 // 4


def assert_same(ours: object, theirs: object) -> None:
    for each in fields(theirs):  # type: ignore[arg-type]  # It is a dataclass.
        name = each.name if hasattr(ours, each.name) else OTHER_NAMES.get(each.name, f"{each.name}_ms")
        assert_equal(getattr(ours, name), getattr(theirs, each.name), f"{type(theirs).__name__}.{each.name}")


def assert_equal(ours: object, theirs: object, what: str) -> None:
    if is_dataclass(theirs):
        assert_same(ours, theirs)
    elif isinstance(theirs, tuple):
        assert isinstance(ours, list)
        assert len(ours) == len(theirs), what
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_equal(our_item, their_item, what)
    else:
        assert ours == plain(theirs, ours), what


def plain(value: object, like: object) -> object:
    """Convert kio's rich value to its representation on the wire."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, enum.Enum):
        return value.value
    if value is None and like in (ZERO_UUID, -1):
        return like
    return value
