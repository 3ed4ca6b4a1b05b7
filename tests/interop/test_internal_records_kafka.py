"""Bytes of records of the internal topics and of consumer metadata, compared with those of Apache Kafka's classes.

The classes of 3.9.1 check the requests between brokers and a controller with ZooKeeper, which no client has.
"""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest
from kafka_peer import REAL_KAFKA, jars
from kafka_zookeeper import OLD_KAFKA, V3, old_jars

from odradek.record.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from odradek.record.internal.internal_codec import GROUP_RECORDS, TRANSACTION_RECORDS, decode_value, encode
from odradek.record.internal.offset_commit_records import LegacyOffsetCommitKey
from odradek.wire.catalog import APIS
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.compile import encode as encode_message
from odradek.wire.schema.primitives import UUID
from odradek.wire.schema.schema import schema_of
from unit.wire.wire_support import Maker

pytestmark = [*REAL_KAFKA, *OLD_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

PROGRAM = Path(__file__).parent / "java" / "InternalRecords.java"
GROUPS = "org.apache.kafka.coordinator.group.generated"
TRANSACTIONS = "org.apache.kafka.coordinator.transaction.generated"
MESSAGES = "org.apache.kafka.common.message"
BETWEEN_BROKERS = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
OTHER_NAMES = {"is_kraft_controller": "isKRaftController"}
ROUNDS = 20
SECONDS_MAX = 300


def test_internal_records_equal_kafkas_bytes() -> None:
    lines, expected = list[str](), list[bytes]()
    for package, records in ((GROUPS, GROUP_RECORDS), (TRANSACTIONS, TRANSACTION_RECORDS)):
        for key_cls, value_cls in records.items():
            for version in schema_of(value_cls).versions:
                for number in range(ROUNDS):
                    maker = Maker(f"kafka {key_cls.__name__} {version} {number}")
                    key, value = maker.message(key_cls, 0), maker.message(value_cls, version)
                    key_bytes, value_bytes = encode(key, value, version)
                    assert value_bytes is not None
                    lines += [line(package, key, -1), line(package, value, version)]
                    expected += [key_bytes, value_bytes]
                    assert key_cls is LegacyOffsetCommitKey or decode_value(key, value_bytes) == value
    assert [data.hex() for data in expected] == java_output(lines)


@pytest.mark.parametrize("version", range(4))
def test_consumer_metadata_equals_kafkas_bytes(version: int) -> None:
    maker = Maker(f"consumers {version}")
    lines, expected = list[str](), list[bytes]()
    for _ in range(ROUNDS):
        subscription = maker.message(ConsumerProtocolSubscription, version)
        assignment = maker.message(ConsumerProtocolAssignment, version)
        assert isinstance(subscription, ConsumerProtocolSubscription)
        assert isinstance(assignment, ConsumerProtocolAssignment)
        lines += [line(MESSAGES, subscription, version), line(MESSAGES, assignment, version)]
        expected += [encode_subscription(subscription, version), encode_assignment(assignment, version)]
    assert [data.hex() for data in expected] == java_output(lines)


def test_inter_broker_messages_equal_kafkas_bytes() -> None:
    lines, expected = list[str](), list[bytes]()
    for cls in (each for key in BETWEEN_BROKERS for each in APIS[key]):
        for version in schema_of(cls).versions:
            maker = Maker(f"brokers {cls.__name__} {version}")
            for _ in range(ROUNDS):
                message = maker.message(cls, version)
                lines.append(line(MESSAGES, message, version, "Data"))
                expected.append(version.to_bytes(2) + encode_message(message, version))
    assert [data.hex() for data in expected] == java_output(lines, old_jars(V3))


def java_output(lines: list[str], folder: Path | None = None) -> list[str]:
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{folder or jars()}/*", str(PROGRAM)]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def line(package: str, message: object, version: int, suffix: str = "") -> str:
    return f"{package}.{type(message).__name__}{suffix}\t{version}\t{json.dumps(as_json(message, max(version, 0)))}"


def as_json(message: object, version: int) -> dict[str, object]:
    """Return the JSON of Kafka's converters: camel case, base64 for bytes, and a uuid in base64 for addresses."""
    found: dict[str, object] = {}
    for field in schema_of(type(message)).fields:
        if field.exists_in(version):
            value = getattr(message, field.name)
            found[OTHER_NAMES.get(field.name) or camel_case(field.name)] = (
                [plain(item, field.type is UUID, version) for item in value]
                if isinstance(value, list)
                else plain(value, field.type is UUID, version)
            )
    return found


def plain(value: object, is_uuid: bool, version: int) -> object:
    if isinstance(value, bytes):
        return urlsafe_b64encode(value).rstrip(b"=").decode() if is_uuid else b64encode(value).decode()
    return value if value is None or isinstance(value, int | str) else as_json(value, version)


def camel_case(name: str) -> str:
    return re.sub("_(.)", lambda match: match[1].upper(), name)
