"""The pytest plugin as installed with Odradek, each time in a pytest of its own."""

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


def run(folder: Path, *arguments: str, status: int = 0, **files: str) -> str:
    """Run pytest on these files; return its output and status. `name_py` is the file name.py."""
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
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout


def test_the_plugin_is_registered_by_the_package() -> None:
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
    assert not kafka.faults.left, "the faults of a test end with it"

@pytest.mark.kafka_topic(partitions=3, configs={"retention.ms": 1000})
def test_a_topic_as_wanted(kafka, kafka_topic):
    assert (kafka.directory / f"{kafka_topic}-2").exists()

def test_which_deletes_its_topic(kafka, kafka_topic):
    kafka.delete_topic(kafka_topic)
"""


def test_fixtures_provide_brokers_and_topics(tmp_path: Path) -> None:
    assert "5 passed" in run(tmp_path, "--strict-markers", test_it_py=FIXTURES)


def test_the_ini_file_configures_the_broker(tmp_path: Path) -> None:
    ini = "[pytest]\nkafka_configs =\n    num.partitions = 4\n    auto.create.topics.enable=false\n"
    test = """
        def test_partitions(kafka, kafka_topic):
            assert (kafka.directory / f"{kafka_topic}-3").exists()
    """
    assert "1 passed" in run(tmp_path, pytest_ini=ini, test_it_py=test.replace("\n        ", "\n"))


def test_a_fixture_configures_the_broker(tmp_path: Path) -> None:
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


def test_each_xdist_worker_has_its_own_broker(tmp_path: Path) -> None:
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


def test_a_coroutine_uses_the_broker(tmp_path: Path) -> None:
    """Any plugin that runs coroutines works; here it is only asyncio itself."""
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


def test_an_unused_plugin_loads_no_modules(tmp_path: Path) -> None:
    """A session without a broker loads only the two files that define the fixtures."""
    test = """
import sys

def test_loaded():
    ours = sorted(name for name in sys.modules if name.startswith("odradek"))
    assert ours == ["odradek", "odradek.testing", "odradek.testing.plugin"], ours
    assert not any(name.partition(".")[0] in ("uvloop", "sqlite3", "fastcrc", "cramjam") for name in sys.modules)
"""
    assert "1 passed" in run(tmp_path, "-p", "no:xdist", test_it_py=test)


def test_the_plugin_can_be_disabled(tmp_path: Path) -> None:
    if not REGISTERED:
        pytest.skip("the plugin is not registered")
    test = "def test_plugin(pytestconfig):\n    assert not pytestconfig.pluginmanager.has_plugin('odradek')\n"
    assert "1 passed" in run(tmp_path, "-p", "no:odradek", test_it_py=test)


def test_fixtures_have_descriptions(tmp_path: Path) -> None:
    output = run(tmp_path, "--fixtures", test_it_py="")
    assert re.search(r"^kafka \[session scope\].*\n +Provide a broker in this process", output, re.MULTILINE)
    assert re.search(r"^kafka_topic.*\n +Provide the name of a topic for this test", output, re.MULTILINE)


FAULTS_WITHOUT_A_TOPIC = """
from confluent_kafka.admin import AdminClient
import pytest

@pytest.fixture
def dropping(kafka):
    kafka.faults.drop("Metadata", times=None)
    yield
    AdminClient({"bootstrap.servers": kafka.address}).list_topics(timeout=30)
    kafka.faults.drop("Metadata", times=None)

@pytest.mark.parametrize("number", range(2))
def test_which_leaves_faults(kafka, dropping, number):
    assert len(kafka.faults.left) == 1
    kafka.faults.drop("Fetch", times=None)

def test_after_it(kafka):
    assert kafka.faults.left == []
    AdminClient({"bootstrap.servers": kafka.address}).list_topics(timeout=30)
"""


def test_the_faults_of_a_test_end_with_it(tmp_path: Path) -> None:
    """So do those of its own fixtures, only after the fixtures, which may need them."""
    assert "3 passed" in run(tmp_path, test_it_py=FAULTS_WITHOUT_A_TOPIC)


FAULTS_OF_FIXTURES = """
import pytest

@pytest.fixture(scope="module")
def dropping(request):
    kafka = request.getfixturevalue("kafka")
    return kafka.faults.drop("Metadata", times=None)

@pytest.mark.parametrize("number", range(2))
def test_both(kafka, kafka_topic, slow, dropping, number):
    assert kafka.faults.left == [slow, dropping]
    kafka.faults.drop("Fetch", times=None)
"""
CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def slow(kafka):
    return kafka.faults.delay("Fetch", seconds=1, times=None)
"""
FAULTS_LATER = "def test_other_module(kafka, slow):\n    assert kafka.faults.left == [slow]\n"


@pytest.mark.nightly
def test_the_faults_of_a_fixture_end_with_it(tmp_path: Path) -> None:
    assert "3 passed" in run(tmp_path, test_1_py=FAULTS_OF_FIXTURES, test_2_py=FAULTS_LATER, conftest_py=CONFTEST)


STOPPING = """
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
import pytest

@pytest.fixture(autouse=True, scope="module")
def topic(kafka):
    kafka.create_topic("kept")
    return "kept"

@pytest.fixture
def stopped_for_the_test(kafka):
    kafka.stop()
    yield
    kafka.start()

def works(kafka):
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce("kept", b"one")
    assert producer.flush(60) == 0
    assert "kept" in kafka.topics()

@pytest.mark.parametrize("stop", ["stop", "kill"])
def test_culprit(kafka, kafka_topic, stop):
    getattr(kafka, stop)()

def test_after_it(kafka, kafka_topic):
    works(kafka)

def test_which_may(kafka, stopped_for_the_test):
    assert not kafka.is_running

def test_which_starts_it_again(kafka):
    kafka.stop()
    kafka.start()

def test_which_fails(kafka):
    kafka.stop()
    assert kafka.is_running, "as it should be"

def broken(client_id):
    raise AssertionError("an invariant is broken")

def test_the_broker_fails(kafka):
    kafka.faults.drop("ApiVersions", client_id=broken)
    with pytest.raises(Exception):
        AdminClient({"bootstrap.servers": kafka.address}).list_topics(timeout=1)

def test_after_that(kafka, kafka_topic):
    works(kafka)

def test_the_last(kafka):
    kafka.stop()
"""
CULPRITS = ("test_culprit[stop]", "test_culprit[kill]", "test_which_fails", "test_the_last")


@pytest.mark.share(2)
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_that_stops_the_shared_broker_gets_an_error(tmp_path: Path, workers: str) -> None:
    """The broker restarts with its data, so that other tests do not fail."""
    output = run(tmp_path, "-rEf", "-n", workers, "--dist=loadfile", status=1, test_it_py=STOPPING)
    for test in CULPRITS:
        assert f"{test} stopped the shared broker: restart it before the test ends" in output
    assert "the shared broker failed in test_the_broker_fails: AssertionError('an invariant" in output
    assert set(re.findall(r"^ERROR \S+::(\S+)", output, re.MULTILINE)) == {*CULPRITS, "test_the_broker_fails"}
    assert set(re.findall(r"^FAILED \S+::(\S+)", output, re.MULTILINE)) == {"test_which_fails"}
    assert "1 failed, 8 passed, 5 errors" in output


@pytest.mark.nightly
def test_each_worker_restarts_its_own_broker(tmp_path: Path) -> None:
    test = """
import pytest

@pytest.mark.parametrize("number", range(10))
def test_it(kafka, kafka_topic, number):
    assert kafka_topic in kafka.topics()
    if number % 2:
        kafka.kill()
"""
    assert "10 passed, 5 errors" in run(tmp_path, "-n", "2", status=1, test_it_py=test)


def test_a_stopped_broker_and_a_fixture_failure_are_both_reported(tmp_path: Path) -> None:
    test = """
import pytest

@pytest.fixture
def failing():
    yield
    raise ValueError("of the fixture")

def test_it(kafka, failing):
    kafka.stop()

def test_after_it(kafka):
    assert kafka.topics() == []
"""
    output = run(tmp_path, status=1, test_it_py=test)
    assert "2 passed, 1 error" in output
    assert "ValueError: of the fixture" in output
    assert "test_it stopped the shared broker" in output


@pytest.mark.nightly
def test_a_broker_with_damaged_data_starts_with_none(tmp_path: Path) -> None:
    test = """
def test_it(kafka):
    kafka.create_topic("lost")
    kafka.kill()
    (kafka.directory / "metadata.sqlite").write_bytes(b"x" * 10_000)

def test_after_it(kafka, kafka_topic):
    assert kafka.topics() == [kafka_topic]
"""
    assert "2 passed, 1 error" in run(tmp_path, status=1, test_it_py=test)
