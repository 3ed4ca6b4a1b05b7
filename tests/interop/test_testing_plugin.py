"""The pytest plugin, as a project gets it that has Odradek installed: in a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

PLUGIN = "odradek.testing.plugin"
REGISTERED = any(one.value == PLUGIN for one in entry_points(group="pytest11"))
SECONDS_MAX = 300


def run(folder: Path, *arguments: str, **files: str) -> str:
    """What pytest says of these files; `name_py` is the file name.py."""
    for name, content in files.items():
        path = folder / name.replace("_py", ".py").replace("_ini", ".ini")
        path.write_text(content)
    known = [] if REGISTERED else ["-p", PLUGIN]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *known, *arguments]
    ended = subprocess.run(
        command,
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_it_comes_with_the_package() -> None:
    assert REGISTERED, "install the package again: its entry points are older than this test"


FIXTURES = """
from confluent_kafka import Producer
import pytest

BROKERS = set()

@pytest.mark.parametrize("way", ["ä b/c", "x" * 300])
def test_a_topic_for_each(kafka, kafka_topic, way):
    assert kafka.topics() == [kafka_topic]
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(kafka_topic, b"one", on_delivery=lambda error, message: BROKERS.add((error, kafka.address)))
    assert producer.flush(120) == 0
    kafka.faults.drop("Fetch", times=None)

def test_one_broker_for_all(kafka):
    assert BROKERS == {(None, kafka.address)}
    assert kafka.topics() == []
    with kafka.faults.drop("Metadata") as fault:
        assert repr(fault)
    assert not kafka.faults.is_armed(1), "the faults of a test end with it"

@pytest.mark.kafka_topic(partitions=3, configs={"retention.ms": 1000})
def test_a_topic_as_wanted(kafka, kafka_topic):
    assert (kafka.directory / f"{kafka_topic}-2").exists()

def test_which_deletes_its_topic(kafka, kafka_topic):
    kafka.delete_topic(kafka_topic)
"""


def test_fixtures(tmp_path: Path) -> None:
    assert "5 passed" in run(tmp_path, "--strict-markers", test_it_py=FIXTURES)


def test_configured_in_the_ini_file(tmp_path: Path) -> None:
    ini = "[pytest]\nkafka_configs =\n    num.partitions = 4\n    auto.create.topics.enable=false\n"
    test = """
        def test_partitions(kafka, kafka_topic):
            assert (kafka.directory / f"{kafka_topic}-3").exists()
    """
    assert "1 passed" in run(tmp_path, pytest_ini=ini, test_it_py=test.replace("\n        ", "\n"))


def test_configured_by_a_fixture(tmp_path: Path) -> None:
    conftest = """
import pytest

@pytest.fixture(scope="session")
def kafka_configs():
    return {"num.partitions": 4}
"""
    test = """
def test_partitions(kafka, kafka_topic):
    assert (kafka.directory / f"{kafka_topic}-3").exists()
"""
    assert "1 passed" in run(tmp_path, conftest_py=conftest, test_it_py=test)


def test_each_worker_of_xdist_has_its_own(tmp_path: Path) -> None:
    test = """
import os
import pytest

@pytest.mark.parametrize("number", range(6))
def test_port(kafka, kafka_topic, number, worker_id):
    assert kafka.topics() == [kafka_topic]
    with open("ports", "a") as ports:
        ports.write(f"{worker_id} {kafka.port}\\n")
"""
    assert "6 passed" in run(tmp_path, "-n", "2", test_it_py=test)
    lines = set((tmp_path / "ports").read_text().splitlines())
    assert len(lines) == len({line.split()[0] for line in lines}) == len({line.split()[1] for line in lines}) == 2


def test_a_coroutine(tmp_path: Path) -> None:
    """Any plugin that runs coroutines will do; here there is only asyncio itself."""
    test = """
import asyncio
from aiokafka import AIOKafkaProducer

def test_send(kafka, kafka_topic):
    async def send():
        producer = AIOKafkaProducer(bootstrap_servers=kafka.address)
        await producer.start()
        sent = await producer.send_and_wait(kafka_topic, b"one")
        await producer.stop()
        return sent.offset

    assert asyncio.run(send()) == 0
"""
    assert "1 passed" in run(tmp_path, test_it_py=test)


def test_unused_it_costs_nothing(tmp_path: Path) -> None:
    """A session that asks for no broker has loaded of ours the two files that say what there would be."""
    test = """
import sys

def test_loaded():
    ours = sorted(name for name in sys.modules if name.startswith("odradek"))
    assert ours == ["odradek", "odradek.testing", "odradek.testing.plugin"], ours
    assert not any(name.partition(".")[0] in ("uvloop", "sqlite3", "crc32c", "cramjam") for name in sys.modules)
"""
    assert "1 passed" in run(tmp_path, "-p", "no:xdist", test_it_py=test)


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    if not REGISTERED:
        pytest.skip("the plugin is not registered")
    test = "def test_plugin(pytestconfig):\n    assert not pytestconfig.pluginmanager.has_plugin('odradek')\n"
    assert "1 passed" in run(tmp_path, "-p", "no:odradek", test_it_py=test)


def test_what_is_said_of_it(tmp_path: Path) -> None:
    told = run(tmp_path, "--fixtures", test_it_py="")
    assert re.search(r"^kafka \[session scope\].*\n +A broker in this process", told, re.MULTILINE)
    assert re.search(r"^kafka_topic.*\n +The name of a topic that only this test has", told, re.MULTILINE)
