"""`odradek load` with one fault at a time: its message, its end, and a complete load afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from load_process import Load, Place
from load_runs import loaded, numbers, rows
from object_store import ObjectStore
from spark_brokers import odradek
from spark_support import Kafka, Message

from support.serving import Serving
from support.small_disk import small_disk

pytestmark = [pytest.mark.spark, pytest.mark.java]

SECONDS_MAX = 300


def in_one_sentence(load: Load) -> bool:
    """Return whether only the last line reports an error, without a traceback."""
    errors = [line for line in load.output().splitlines() if line.startswith("odradek:")]
    return len(errors) == 1 and "Traceback" not in load.output() and load.output().rstrip().endswith(errors[0])


# Unreachable brokers.


@pytest.mark.nightly
def test_a_load_waits_for_brokers_that_are_started_later(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = Serving(tmp_path / "broker").start()
    kafka, place = Kafka(broker.address, is_odradek=True), Place.in_folder(tmp_path / "lake")
    topic = kafka.topic()
    kafka.numbers(topic, 0, 100)
    broker.stop()
    with Load(kafka.address, place, "--once", folder=tmp_path / "load", topics=topic) as load:
        load.until(lambda: "waiting" in load.output() or load.status is not None, "a word that it waits")
        time.sleep(2)
        with broker:
            assert load.wait() == 0, load.output()
    assert numbers(place.folder) == list(range(100))


@contextmanager
def web_server() -> Iterator[str]:
    """Return the address of a web server that speaks no Kafka."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_an_address_without_a_broker_is_not_retried(tmp_path: Path) -> None:
    place = Place.in_folder(tmp_path / "lake")
    with web_server() as address, Load(address, place, "--once", folder=tmp_path / "load", topics="t") as load:
        assert load.wait() == 1
        assert "waiting" not in load.output()
        assert in_one_sentence(load), load.output()
    assert not place.folder.exists()


# Java.


@pytest.mark.nightly
def test_a_kill_of_java_between_batches_ends_the_load(tmp_path: Path) -> None:
    kafka, place = odradek(), Place.in_folder(tmp_path / "lake")
    topic = kafka.topic()
    kafka.numbers(topic, 0, 100)
    with Load(kafka.address, place, "--continuous", folder=tmp_path / "load", topics=topic) as load:
        load.wait_for_version(1)
        time.sleep(1)  # The batch is over, and the next is not due yet.
        (java,) = load.java()
        os.kill(java, signal.SIGKILL)
        kafka.numbers(topic, 100, 100)
        assert load.wait() == 1
        assert in_one_sentence(load), load.output()
        assert "Java process ended" in load.output()
    assert loaded(kafka, place.folder, topic)[0] == 0
    assert numbers(place.folder) == list(range(200))


def test_a_stop_in_the_middle_of_a_batch_is_quiet(tmp_path: Path) -> None:
    kafka, place = odradek(), Place.in_folder(tmp_path / "lake")
    topic = kafka.topic()
    kafka.numbers(topic, 0, 100)
    with Load(
        kafka.address, place, "--continuous", "--interval-ms=500", folder=tmp_path / "load", topics=topic
    ) as load:
        load.wait_for_version(1)
        workers = load.workers()
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        kafka.numbers(topic, 100, 100)
        time.sleep(2)  # The next batch has begun, and waits for a worker.
        os.kill(load.pid, signal.SIGTERM)
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        assert load.wait() == 0
        assert place.version() == 1
        assert "Traceback" not in load.output()
        assert load.output().endswith("the next run continues after them.\n"), load.output()
    assert loaded(kafka, place.folder, topic)[0] == 0
    assert numbers(place.folder) == list(range(200))


# A full disk.


def resize(disk: Path, **limits: str) -> None:
    options = ",".join(["remount", *(f"{name}={value}" for name, value in limits.items())])
    subprocess.run(["mount", "-o", options, str(disk)], check=True)


def test_a_disk_that_fills_during_a_write_ends_the_load(tmp_path: Path) -> None:
    kafka = odradek()
    topic = kafka.topic(2)
    values = [os.urandom(64 << 10) for _ in range(400)]  # 25 MiB that no compression makes smaller.
    kafka.produce(topic, (Message(value, partition=n % 2) for n, value in enumerate(values)))
    with small_disk(tmp_path / "disk", 4) as disk:
        lake = disk / "lake"
        status, output = loaded(kafka, lake, topic)
        assert (status, output.count("\n")) == (1, 1), output
        assert "No space left on device" in output
        assert list(lake.glob("**/*.parquet")) == []
        resize(disk, size="64m")
        assert loaded(kafka, lake, topic)[0] == 0
        assert rows(lake) == sorted(values)


def test_a_disk_full_at_a_commit_ends_the_load(tmp_path: Path) -> None:
    kafka = odradek()
    topic = kafka.topic()
    kafka.numbers(topic, 0, 100)
    with small_disk(tmp_path / "disk", 64) as disk:
        lake = disk / "lake"
        assert loaded(kafka, lake, topic)[0] == 0
        kafka.numbers(topic, 100, 100)
        status = os.statvfs(disk)
        resize(disk, nr_inodes=str(status.f_files - status.f_ffree + 1))  # Room for the batch's one file of data.
        exit_status, output = loaded(kafka, lake, topic)
        assert (exit_status, output.count("\n")) == (1, 1), output
        assert "No space left on device" in output
        assert numbers(lake) == list(range(100))
        resize(disk, nr_inodes="1000")
        assert loaded(kafka, lake, topic)[0] == 0
        assert numbers(lake) == list(range(200))


# Places.


@pytest.mark.parametrize("place", ["dbfs:/x", "foo://x", "s3:bucket"])
def test_an_invalid_place_is_refused(tmp_path: Path, place: str) -> None:
    command = [sys.executable, "-m", "odradek", "load", "--topics", "t", "--lake", place]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert place in done.stderr
    assert list(tmp_path.iterdir()) == []


# Stops by the user.


@pytest.mark.nightly
def test_ctrl_c_is_quiet_at_any_moment(tmp_path: Path) -> None:
    """It comes during imports, Java's start, between two batches and in one; no Java process stays behind."""
    kafka = odradek()
    topic = kafka.topic()
    kafka.numbers(topic, 0, 60_000)
    for number, seconds in enumerate((0.5, 2, 4, 7)):
        place, folder = Place.in_folder(tmp_path / f"lake-{number}"), tmp_path / f"load-{number}"
        with Load(kafka.address, place, "--batch-records=500", folder=folder, topics=topic) as load:
            time.sleep(seconds)
            os.kill(load.pid, signal.SIGINT)
            assert load.wait() in (130, -signal.SIGINT), load.output()
            load.until(lambda: not load.java(), "the end of its Java")
            messages = [
                line for line in load.output().splitlines() if not line.startswith(f"{topic}: ")
            ]  # Progress lines.
            assert messages in (
                [],
                ["Stopped. The lake keeps the loaded records, and the next run continues after them."],
            )


def test_a_load_can_be_stopped_while_its_store_hangs(tmp_path: Path) -> None:
    kafka = odradek()
    topic = kafka.topic()
    kafka.numbers(topic, 0, 100)
    with ObjectStore(tmp_path / "store") as store:
        place = Place.in_store(store, "lake")
        steady = ("--continuous", "--interval-ms=100", "--storage=timeout=1000s")
        with Load(kafka.address, place, *steady, folder=tmp_path / "load", topics=topic) as load:
            load.wait_for_version(1)
            store.pause()
            time.sleep(2)  # The next plan asks the store in vain.
            assert load.terminate() == 0
            assert "the next run continues after them" in load.output()
            assert "Traceback" not in load.output()
