"""Records deleted from the start of a topic, and log directories described, by other clients."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clients.client import SECONDS_MAX, Start
from clients.fixtures import BROKERS, broker, new_topic
from clients.librdkafka import Librdkafka
from clients.records import NOW_MS, Record
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as TopicPartitionOfKafkaPython
from kafka.admin import KafkaAdminClient
from kafka_peer import REAL_KAFKA, TOOL_SECONDS_MAX, VERSION, run_tool
from kafka_tools import TOOLS
from kafka_zookeeper import OLD_KAFKA, V3, old_java

from odradek.base.errors import ErrorCode

DELETE_RECORDS = f"{TOOLS}.DeleteRecordsCommand"
LOG_DIRS = f"{TOOLS}.LogDirsCommand"
RECORDS = 10
TO_THE_END = -1
Delete = Callable[[str, str, int], "int | ErrorCode"]  # Address, topic, offset of partition 0.


@pytest.fixture(scope="module", params=BROKERS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(request.param, tmp_path_factory.mktemp("trim")) as those:
        yield those


def filled(address: str, **configs: str) -> str:
    topic = new_topic(address, 2, {key.replace("_", "."): value for key, value in configs.items()})
    records = [Record(b"%d" % number, b"value", (), NOW_MS) for number in range(RECORDS)]
    Librdkafka(address).produce(topic, "none", records)
    return topic


def by_librdkafka(address: str, topic: str, offset: int) -> int | ErrorCode:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    (result,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    try:
        return int(result.result(SECONDS_MAX).low_watermark)
    except KafkaException as error:
        return ErrorCode(error.args[0].code())


def by_kafka_python(address: str, topic: str, offset: int) -> int | ErrorCode:
    admin: Any = KafkaAdminClient(bootstrap_servers=address)
    try:
        result = admin.delete_records({TopicPartitionOfKafkaPython(topic, 0): offset})
        return int(next(iter(result.values()))["low_watermark"])
    except Exception as error:
        return ErrorCode(error.errno)  # type: ignore[attr-defined]
    finally:
        admin.close()


DELETERS = [pytest.param(by_librdkafka, id="librdkafka"), pytest.param(by_kafka_python, id="kafka-python")]


def earliest(address: str, topic: str) -> int:
    client = Librdkafka(address)
    (first, *_) = client.consume(topic, Start("beginning"), 1)
    client.close()
    return first.offset


@pytest.mark.parametrize("delete", DELETERS)
def test_deleted_records_are_not_read(address: str, delete: Delete) -> None:
    topic = filled(address)
    assert delete(address, topic, 4) == 4
    assert earliest(address, topic) == 4
    assert delete(address, topic, 2) == 4
    assert delete(address, topic, TO_THE_END) == RECORDS
    Librdkafka(address).produce(topic, "none", [Record(b"k", b"new", (), NOW_MS)])
    assert earliest(address, topic) == RECORDS


@pytest.mark.parametrize("delete", DELETERS)
def test_refused_deletions_return_kafkas_error(address: str, delete: Delete) -> None:
    assert delete(address, filled(address), RECORDS + 1) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(address, filled(address, cleanup_policy="compact"), 4) == ErrorCode.POLICY_VIOLATION


def by_tool_of_4(folder: Path, main_class: str, *arguments: str) -> str:
    return run_tool(folder, main_class, *arguments)


def by_tool_of_3(folder: Path, main_class: str, *arguments: str) -> str:
    command = old_java(V3, main_class, *arguments, level="WARN", folder=folder)
    return subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=True).stdout


@pytest.mark.parametrize(
    "ran",
    [pytest.param(by_tool_of_4, id=VERSION, marks=REAL_KAFKA), pytest.param(by_tool_of_3, id="3.9.1", marks=OLD_KAFKA)],
)
def test_kafkas_tools_delete_records_and_describe_log_dirs(
    address: str, ran: Callable[..., str], tmp_path: Path
) -> None:
    topic = filled(address)
    offsets_file = tmp_path / "offsets.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 7}, {"topic": topic, "partition": 1, "offset": -1}]
    offsets_file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    at = ("--bootstrap-server", address)
    output = ran(tmp_path, DELETE_RECORDS, *at, "--offset-json-file", str(offsets_file))
    assert f"partition: {topic}-0\tlow_watermark: 7" in output
    assert f"partition: {topic}-1\tlow_watermark: 0" in output
    described = ran(tmp_path, LOG_DIRS, *at, "--describe", "--topic-list", topic)
    (line,) = [line for line in described.splitlines() if line.startswith("{")]
    folders = [folder for one in json.loads(line)["brokers"] for folder in one["logDirs"]]
    assert [folder["error"] for folder in folders] == [None] * len(folders)
    assert all(Path(folder["logDir"]).is_absolute() for folder in folders)
    parts = [part for folder in folders for part in folder["partitions"]]
    sizes = {part["partition"]: part["size"] for part in parts}
    assert len(parts) == len(sizes) == 2
    assert sizes[f"{topic}-0"] > 0 == sizes[f"{topic}-1"]
    assert all(part["offsetLag"] == 0 and not part["isFuture"] for part in parts)


def test_kafka_python_describes_the_folders(address: str) -> None:
    topic = filled(address)
    admin: Any = KafkaAdminClient(bootstrap_servers=address)
    output = repr(admin.describe_log_dirs())
    admin.close()
    assert topic in output
