"""The start of a broker, and its message if it fails: one sentence on standard error, and status 1 or 2."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.app.main import main
from odradek.base.errors import ErrorCode
from odradek.coordination.sqlite import SqliteTree
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.asking import create, created, delete, fetch_all, produced
from support.raw_client import RawClient, raw_frame
from support.serving import Serving, outcome_of_serve, serving

MODULES_MAX = 700  # Imported by a start; most of its time is their execution.
LIBRARIES = ("kazoo", "numpy", "pandas", "pyarrow", "pyspark", "rich", "typer")  # Each would take as long again.
IDLE_KIB_MAX = 80 * 1024
WAIT_SECONDS_MAX = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("start")) as running:
        yield running


def test_start_imports_few_modules_and_takes_little_memory(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            client.ping()
        time.sleep(0.2)
        assert broker.memory_kib() < IDLE_KIB_MAX
        broker.stop()
        broker.environment["PYTHONPROFILEIMPORTTIME"] = "1"
        broker.start()
        imported = [line.rpartition("|")[2].strip() for line in broker.errors().splitlines() if "import time:" in line]
    assert 100 < len(imported) < MODULES_MAX
    assert not {module.partition(".")[0] for module in imported}.intersection(LIBRARIES)


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({}, "127.0.0.1"),
        ({"listeners": "PLAINTEXT://localhost:0"}, "localhost"),
        ({"listeners": "PLAINTEXT://:0"}, "127.0.0.1"),
        ({"listeners": "PLAINTEXT://0.0.0.0:0"}, "127.0.0.1"),
        ({"advertised.listeners": "PLAINTEXT://kafka.example.org:9094"}, "kafka.example.org"),
    ],
)
def test_clients_get_a_reachable_address(tmp_path: Path, settings: dict[str, str], host: str) -> None:
    """That is the advertised host, else the listener's; for a wildcard, the address that the client connected to."""
    with Serving(tmp_path, "--insecure", **settings) as broker, RawClient(broker.port) as client:
        (known,) = client.request(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
        assert (known.host, known.port) == (host, 9094 if "example" in host else broker.port)


def overrides(directory: Path, port: int = 0) -> list[str]:
    return [f"--override=log.dirs={directory}", f"--override=listeners=PLAINTEXT://127.0.0.1:{port}"]


def one_sentence(text: str) -> str:
    (line,) = text.strip().splitlines()
    assert line.startswith("odradek serve: ")
    return line


def test_a_data_directory_in_use_ends_the_start(broker: Serving, tmp_path: Path) -> None:
    status, text = outcome_of_serve(tmp_path, *overrides(broker.directory / "data"))
    assert status == 1
    assert "in use by another" in one_sentence(text)
    with RawClient(broker.port) as client:
        client.ping()


def test_a_port_in_use_ends_the_start(broker: Serving, tmp_path: Path) -> None:
    status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data", broker.port))
    assert status == 1
    assert f":{broker.port}: the port is in use" in one_sentence(text)
    assert not (tmp_path / "data").exists()


def test_a_data_directory_that_is_a_file_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data"))
    assert status == 1
    assert str(tmp_path / "data") in one_sentence(text)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_parent_directory_ends_the_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    status, text = outcome_of_serve(Path("/"), *overrides(tmp_path / "data"))
    tmp_path.chmod(0o700)
    assert status == 1
    assert str(tmp_path / "data") in one_sentence(text)


def test_a_directory_that_cannot_be_created_ends_the_start(tmp_path: Path) -> None:
    status, text = outcome_of_serve(tmp_path, *overrides(Path("/proc/no/such")))
    assert status == 1
    assert "/proc/no" in one_sentence(text)


def test_a_log_directory_that_is_a_file_is_offline(tmp_path: Path) -> None:
    """As in Apache Kafka it is offline alone; without another directory the broker does not start."""
    bad = tmp_path / "b"
    bad.write_text("not a directory")
    with Serving(tmp_path, **{"log.dirs": f"{tmp_path / 'a'},{bad}"}) as broker:
        assert f"{bad}" in broker.errors() and "ERROR" in broker.errors()
    status, text = outcome_of_serve(tmp_path, f"--override=log.dirs={bad}", overrides(tmp_path)[1])
    assert status == 1
    assert str(bad) in one_sentence(text)


@pytest.mark.parametrize(
    ("properties", "culprit"),
    [
        ("num.partitons=1\n", "num.partitons"),
        ("num.partitions=many\n", "num.partitions"),
        ("num.partitions=0\n", "num.partitions"),
        ("listeners=nonsense\n", "listeners"),
        ("listeners=PLAINTEXT://127.0.0.1:99999\n", "listeners"),
        ("broker.id=-7\n", "-7"),
        ("log.dirs=\\u12\n", "server.properties"),
    ],
)
def test_an_invalid_configuration_ends_the_start(tmp_path: Path, properties: str, culprit: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text(properties)
    status, text = outcome_of_serve(tmp_path, str(path))
    assert status == 2
    assert culprit in one_sentence(text)


def test_a_missing_configuration_file_ends_the_start(tmp_path: Path) -> None:
    status, text = outcome_of_serve(tmp_path, str(tmp_path / "nowhere.properties"))
    assert status == 2
    assert "nowhere.properties" in one_sentence(text)


@pytest.mark.parametrize("content", [b"rubbish" * 1000, b"SQLite format 3\0" + bytes(5000), b"x"])
def test_an_invalid_metadata_file_ends_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "metadata.sqlite").write_bytes(content)
    status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data"))
    assert status == 1
    assert "metadata.sqlite" in one_sentence(text)


def test_a_foreign_database_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "metadata.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE cats (name TEXT)")
    database.close()
    status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data"))
    assert status == 1
    assert "metadata.sqlite" in one_sentence(text)


def test_a_corrupt_metadata_file_ends_the_start(tmp_path: Path) -> None:
    """Overwritten pages of a real file cause one sentence at the start, never a traceback."""
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        for number in range(30):
            topic = CreatableTopic(
                name=f"topic-{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            (made,) = client.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics
            assert made.error_code == ErrorCode.NONE
    path = tmp_path / "data" / "metadata.sqlite"
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data"))
    assert status == 1
    assert "metadata.sqlite" in one_sentence(text)


def test_a_directory_of_another_broker_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=other\n")
    status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data"), "--override=broker.id=3")
    assert status == 1
    assert "broker.id=7" in one_sentence(text)


@pytest.mark.parametrize("content", ["version=9\n", "version=\xff\n", "version=0\nbroker.id=99999999999999999999\n"])
def test_invalid_meta_properties_end_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_bytes(content.encode("latin-1"))
    status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data"))
    assert status == 1
    assert "meta.properties" in one_sentence(text)


@pytest.mark.parametrize("is_noted", [True, False])
def test_changed_meta_properties_end_the_start(tmp_path: Path, is_noted: bool) -> None:
    """Truncated or changed ones are refused and all logs left as they are, even without our own note beside them."""
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            created(client, "t")
        broker.stop()
    data = tmp_path / "data"
    meta = data / "meta.properties"
    whole = meta.read_bytes()
    if not is_noted:
        (data / "odradek-identity").unlink()
    for wrong in (whole[:-1], whole[:-2], whole[:-3] + b"\n", whole.replace(b"broker.id=1001", b"broker.id=1003"), b""):
        meta.write_bytes(wrong)
        before = {path: path.stat().st_mtime_ns for path in data.rglob("*") if "metadata" not in path.name}
        status, text = outcome_of_serve(tmp_path, *overrides(data))
        assert status == 1, wrong
        assert "meta.properties" in one_sentence(text) and "codec" not in text
        after = {path: path.stat().st_mtime_ns for path in data.rglob("*") if "metadata" not in path.name}
        assert after == before, "nothing was touched"
    meta.write_bytes(whole)
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        client.ping()


def test_logs_without_a_known_owner_end_the_start(tmp_path: Path) -> None:
    """With a new id the broker would lead none of them."""
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            created(client, "t")
        broker.stop()
        meta = tmp_path / "data" / "meta.properties"
        (number,) = [line for line in meta.read_text().splitlines() if line.startswith("broker.id=")]
        meta.unlink()
        status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data"))
        assert status == 1
        assert "meta.properties" in one_sentence(text) and number.partition("=")[2] in text
        status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data"), "--override=broker.id=77")
        assert status == 1 and "set broker.id" in one_sentence(text)
        assert (tmp_path / "data" / "t-0").is_dir(), "and nothing was moved"


@pytest.mark.parametrize("same_id", [False, True])
def test_metadata_in_use_by_another_broker_ends_the_start(tmp_path: Path, same_id: bool) -> None:
    """A second broker is refused; a killed broker does not prevent the next start."""
    shared = {"metadata.log.dir": str(tmp_path / "metadata")} | ({"broker.id": "7"} if same_id else {})
    second = [*overrides(tmp_path / "second"), *(f"--override={key}={value}" for key, value in shared.items())]
    (tmp_path / "first").mkdir()
    with Serving(tmp_path / "first", **shared) as first:
        status, text = outcome_of_serve(tmp_path, *second)
        assert status == 1
        assert f"Broker {7 if same_id else 1001} at 127.0.0.1:{first.port} is already using" in one_sentence(text)
        assert not (tmp_path / "second").exists(), "nothing is touched before"
        with RawClient(first.port) as client:
            created(client, "t")
        first.kill()
    (tmp_path / "third").mkdir()
    with Serving(tmp_path / "third", **shared) as third, RawClient(third.port) as client:
        client.ping()


@pytest.mark.parametrize(
    ("path", "stops"),
    [
        ("/brokers/topics/bad", True),
        # It is known to the controller, and nothing of it is deleted while it cannot be read.
        ("/brokers/topics/bad/partitions/0/state", False),
        ("/config/topics/bad", False),
    ],
)
def test_an_unreadable_znode_fails_only_changes_that_depend_on_it(tmp_path: Path, path: str, stops: bool) -> None:
    """Changes of other topics succeed."""
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        created(client, "good", "bad")
        with SqliteTree(tmp_path / "data" / "metadata.sqlite") as tree:
            tree.set(path, b"rubbish")
        topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("bad", "good")]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=20_000, validate_only=False)
        bad, good = client.request(request, 3, CreatePartitionsResponse).results
        assert good.error_code == ErrorCode.NONE
        assert partitions_of(client, "bad") == (ErrorCode.NONE, 1 if stops else 2)
        if stops:
            assert bad.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert bad.error_message is not None and f"failed to read {path}" in bad.error_message
            with SqliteTree(tmp_path / "data" / "metadata.sqlite") as tree:
                assert len(tree.children("/brokers/topics/bad/partitions")) == 1, "it was refused, and not half done"
        assert delete(client, "bad") == (ErrorCode.UNKNOWN_SERVER_ERROR if stops else ErrorCode.NONE)
        assert delete(client, "good") == ErrorCode.NONE
        assert "Traceback" not in broker.errors()
        if stops:
            assert f"failed to change topic bad: failed to read {path}" in broker.errors()


def find_coordinator(client: RawClient) -> ErrorCode:
    """Send FindCoordinator until the internal topic is available."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while True:
        (found,) = client.request(request, 4, FindCoordinatorResponse).coordinators
        if found.error_code == ErrorCode.NONE or time.monotonic() > end or "can't" in (found.error_message or ""):
            return ErrorCode(found.error_code)
        time.sleep(0.05)


def partitions_of(client: RawClient, topic: str) -> tuple[ErrorCode, int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    (topic_found,) = client.request(request, 12, MetadataResponse).topics
    return ErrorCode(topic_found.error_code), len(topic_found.partitions)


@pytest.mark.parametrize(
    ("topic", "path", "error"),
    [
        ("bad", "/brokers/topics/bad", ErrorCode.LEADER_NOT_AVAILABLE),
        ("bad", "/brokers/topics/bad/partitions/0/state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),  # As in Kafka.
        ("__consumer_offsets", "/brokers/topics/__consumer_offsets", ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_an_unreadable_znode_makes_only_its_topic_unavailable(
    tmp_path: Path, topic: str, path: str, error: ErrorCode
) -> None:
    """The topic is back unchanged once the znode can be read again; other topics are served."""
    with serving(tmp_path, offsets_topic_num_partitions="2") as broker:
        with RawClient(broker.port) as client:
            created(client, "good", "bad")
            produced(client, "bad", b"a", b"b", b"c")
            assert find_coordinator(client) == ErrorCode.NONE
            partitions = partitions_of(client, topic)
        broker.stop()
        with SqliteTree(tmp_path / "data" / "metadata.sqlite") as tree:
            whole = tree.get(path)[0]
            tree.set(path, b"rubbish")
        broker.start()
        assert f"failed to read {path}" in broker.errors()
        with RawClient(broker.port) as client:
            produced(client, "good", b"a")
            assert partitions_of(client, topic) == (error, 0), "and it is not made anew"
            if topic == "bad":
                assert create(client, topic) == [ErrorCode.TOPIC_ALREADY_EXISTS]
            else:
                assert find_coordinator(client) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.stop()
        with SqliteTree(tmp_path / "data" / "metadata.sqlite") as tree:
            tree.set(path, whole)
        broker.start()
        with RawClient(broker.port) as client:
            assert partitions_of(client, topic) == partitions
            assert len(fetch_all(client, "bad")) == 3, "nothing was set aside"
            assert find_coordinator(client) == ErrorCode.NONE
        assert "Traceback" not in broker.errors()


@pytest.mark.parametrize("topic", ["bad", "__consumer_offsets"])
def test_an_unreadable_topic_configuration_suspends_deletion(tmp_path: Path, topic: str) -> None:
    """Nothing else changes: the unreadable configuration may have been set to keep all records."""
    with serving(tmp_path, offsets_topic_num_partitions="2", log_retention_ms="1") as broker:
        with RawClient(broker.port) as client:
            created(client, "bad")
            assert find_coordinator(client) == ErrorCode.NONE
        broker.stop()
        with SqliteTree(tmp_path / "data" / "metadata.sqlite") as tree:
            tree.set(f"/config/topics/{topic}", b"rubbish")
        broker.start()
        with RawClient(broker.port) as client:
            if topic == "bad":
                produced(client, "bad", b"a", timestamp_ms=1_700_000_000_000)
                assert len(fetch_all(client, "bad")) == 1
            assert find_coordinator(client) == ErrorCode.NONE
        assert f"failed to read /config/topics/{topic}" in broker.errors()
        assert f"retention of topic {topic} is suspended" in broker.errors()
        assert "Traceback" not in broker.errors()


def test_nothing_is_deleted_by_an_invalid_stored_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log, `topic config` and the doctor report the value until it is repaired."""
    with serving(tmp_path, log_retention_ms="1") as broker:
        with RawClient(broker.port) as client:
            created(client, "seven")
        broker.stop()
        with SqliteTree(tmp_path / "data" / "metadata.sqlite") as tree:
            tree.set("/config/topics/seven", b'{"version":1,"config":{"retention.ms":"seven"}}')
        broker.start()
        wrong = "Invalid value seven for configuration retention.ms: Not a number of type LONG"
        assert f"The stored configuration of topic seven is not valid: {wrong}" in broker.errors()
        with RawClient(broker.port) as client:
            produced(client, "seven", b"a", timestamp_ms=1_700_000_000_000)
            assert len(fetch_all(client, "seven")) == 1
        address = f"127.0.0.1:{broker.port}"
        assert main(["topic", "config", "seven", "--bootstrap-server", address]) == 0
        shown = capsys.readouterr()
        assert "seven" in shown.out
        assert wrong in shown.err
        main(["doctor", address])
        assert f"the stored configuration of seven is invalid: {wrong}" in " ".join(capsys.readouterr().out.split())
        assert main(["topic", "config", "seven", "--delete", "retention.ms", "--bootstrap-server", address]) == 0
        capsys.readouterr()
        main(["topic", "config", "seven", "--bootstrap-server", address])
        assert not capsys.readouterr().err


def test_a_broker_znode_without_a_number_ends_the_start(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        client.ping()
    with SqliteTree(tmp_path / "data" / "metadata.sqlite") as tree:
        tree.create("/brokers/ids/one", b"{}")
    status, text = outcome_of_serve(tmp_path, *overrides(tmp_path / "data"))
    assert status == 1
    assert "/brokers/ids contains 'one'" in one_sentence(text)


def test_unsupported_apis_are_named_in_the_log(broker: Serving) -> None:
    for key, version, text in (
        (29, 0, "sent DescribeAcls (API key 29), which is not supported"),
        (1, 3, "sent Fetch version 3; supported versions are 4 to 18"),
        (9999, 0, "sent unknown API key 9999"),
    ):
        with RawClient(broker.port) as client:
            client.send(raw_frame(key, version, b""))
            assert client.is_closed()
        assert f"client 'raw' {text}" in broker.errors()
