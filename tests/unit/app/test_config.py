"""server.properties and overrides to settings: the format, the safe defaults, one sentence for each mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.app.config import DEFAULTS, load, settings
from odradek.app.config_documentation import markdown
from odradek.app.effective import EFFECTIVE
from odradek.app.listeners import Endpoint, Listener, SecurityProtocol
from odradek.app.properties import parse_properties
from odradek.core.configs.broker_keys import BROKER_KEYS
from odradek.core.configs.definition import ConfigError
from odradek.core.replica_selector import SELECTORS

DOCUMENT = Path(__file__).parents[3] / "docs" / "CONFIGURATION.md"


def test_properties_format() -> None:
    text = (
        "# comment\n! comment \\\n  a=1\nb : 2\nc 3\nd\n=empty key\r\ne=x \\\n    y\\\n\tz\r"
        "f\\:g\\ h=\\u00e9\\t\\q\ne = last \n\n   # indented comment\nk==v\nodd=a\\\\"
    )
    assert parse_properties(text, "file") == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "",
        "": "empty key",
        "e": "last ",
        "f:g h": "é\tq",
        "k": "=v",
        "odd": "a\\",
    }


def test_a_continued_line_at_the_end_of_the_file() -> None:
    assert parse_properties("a=b\\", "file") == {"a": "b"}


def test_a_broken_escape_is_named_by_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2 of server\.properties"):
        parse_properties("a=1\nb=\\u12", "server.properties")


@given(st.text())
def test_any_text_is_properties_or_refused(text: str) -> None:
    """Every text is read or refused with a ConfigError."""
    try:
        parse_properties(text, "file")
    except ConfigError as error:
        assert "\\u" in str(error)


def escaped(text: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H"))


@given(st.dictionaries(st.text(st.characters(max_codepoint=0xD7FF)), st.text(st.characters(max_codepoint=0xD7FF))))
def test_escaped_properties_come_back(pairs: dict[str, str]) -> None:
    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in pairs.items() if key)
    assert parse_properties(text, "file") == {key: value for key, value in pairs.items() if key}


def test_nothing_set() -> None:
    nothing = settings({})
    assert nothing.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092, SecurityProtocol.PLAINTEXT),)
    assert not nothing.advertised
    assert nothing.log_dirs == (Path("odradek-data"),)
    assert nothing.metadata_dir == Path("odradek-data")
    assert nothing.broker_id is None
    assert nothing.request_bytes_max == 100 * 1024 * 1024
    assert nothing.without_effect == ()


def test_file_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=3\nnum.partitions=2\nlog.dirs=a, b\nsasl.kerberos.service.name=kafka\n")
    read = load(path, ["num.partitions=8", "metadata.log.dir=m"])
    assert read.broker_id == 3
    assert read.configs.int("broker.id") == 3
    assert read.configs.int("num.partitions") == 8
    assert read.log_dirs == (Path("a"), Path("b"))
    assert read.metadata_dir == Path("m")
    assert read.without_effect == ("sasl.kerberos.service.name",)


def test_state_topics_of_a_broker_that_is_alone_have_one_replica() -> None:
    """Where there is a ZooKeeper there may be others, and Kafka's defaults count."""
    keys = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    more = ("transaction.state.log.min.isr",)
    for overrides, wanted in (((), [1, 1, 1]), (("zookeeper.connect=zk:2181",), [3, 3, 2])):
        configs = load(overrides=overrides).configs
        assert [configs.int(key) for key in (*keys, *more)] == wanted
    assert load(overrides=["offsets.topic.replication.factor=2"]).configs.int(keys[0]) == 2


def test_keys_that_are_checked_have_an_effect() -> None:
    """And of what is named in one key, what is not here has none."""
    bounds = {f"group.consumer.{which}.session.timeout.ms": "45000" for which in ("min", "max")}
    bounds |= {f"group.consumer.{which}.heartbeat.interval.ms": "5000" for which in ("min", "max")}
    assert settings(bounds).without_effect == ()
    protocols = settings({"group.coordinator.rebalance.protocols": "classic,consumer,streams"})
    assert protocols.without_effect == ("group.coordinator.rebalance.protocols=streams",)
    assert settings({}).configs.list("group.coordinator.rebalance.protocols") == ("classic", "consumer")


def test_the_file_that_comes_with_kafka_4() -> None:
    """The keys of its config/server.properties; only the bind to all interfaces needs a word."""
    texts = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "num.network.threads": "3",
        "num.io.threads": "8",
        "log.dirs": "logs",
        "log.retention.hours": "168",
    }
    with pytest.raises(ConfigError, match=r"PLAINTEXT://:9092 would let anyone on the network in"):
        settings(texts)
    read = settings(texts, insecure=True)
    assert [str(listener) for listener in read.listeners] == ["PLAINTEXT://:9092"]
    assert read.advertised == {"PLAINTEXT": Endpoint("localhost", 9092)}
    assert "num.io.threads" in read.without_effect


def test_keys_from_before_listeners() -> None:
    read = settings({"host.name": "localhost", "port": "9000", "advertised.host.name": "example.org"})
    assert [str(listener) for listener in read.listeners] == ["PLAINTEXT://localhost:9000"]
    assert read.advertised == {"PLAINTEXT": Endpoint("example.org", 9000)}


def test_ipv6() -> None:
    (listener,) = settings({"listeners": "PLAINTEXT://[::1]:9092"}).listeners
    assert (listener.host, listener.is_loopback, str(listener)) == ("::1", True, "PLAINTEXT://[::1]:9092")


MISTAKES: list[tuple[dict[str, str], str]] = [
    ({"num.partition": "3"}, "num.partition is no configuration of a Kafka broker; did you mean num.partitions?"),
    ({"qwertyuiop": "3"}, "qwertyuiop is no configuration of a Kafka broker."),
    ({"num.partitions": "x"}, "Invalid value x for configuration num.partitions: Not a number of type INT"),
    ({"num.partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
    ({"listeners": ""}, "Configuration 'listeners' must not be empty. Valid values include: any non-empty value"),
    ({"listeners": "localhost:9092"}, "listeners holds 'localhost:9092', which is not of the form NAME://host:port."),
    (
        {"listeners": "PLAINTEXT://127.0.0.1:99999"},
        "listeners holds 'PLAINTEXT://127.0.0.1:99999', but a port is between 0 and 65535.",
    ),
    (
        {"listeners": "A://127.0.0.1:1"},
        "No security protocol is defined for listener A: add it to listener.security.protocol.map.",
    ),
    (
        {"listeners": "PLAINTEXT://127.0.0.1:1,plaintext://127.0.0.1:2"},
        "listeners names PLAINTEXT twice: each listener must have a name of its own.",
    ),
    (
        {
            "listeners": "A://127.0.0.1:1,B://127.0.0.1:1",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        },
        "Listeners A and B can't both have port 1.",
    ),
    (
        {"listener.security.protocol.map": "A"},
        "listener.security.protocol.map holds 'A': it must be NAME:PROTOCOL, "
        "PROTOCOL one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.",
    ),
    (
        {"listeners": "C://:1", "controller.listener.names": "C", "listener.security.protocol.map": "C:PLAINTEXT"},
        "listeners has no listener for clients: there must be one beside those of the controller.",
    ),
    (
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
        "advertised.listeners must give clients an address they can reach for PLAINTEXT, not 0.0.0.0:9092.",
    ),
    (
        {"advertised.listeners": "OTHER://h:1"},
        "advertised.listeners names OTHER, which is not among listeners (PLAINTEXT).",
    ),
    (
        {"listeners": "PLAINTEXT://10.0.0.1:9092"},
        "Listener PLAINTEXT://10.0.0.1:9092 would let anyone on the network in without authentication: "
        "listen on 127.0.0.1, or say --insecure.",
    ),
    (
        {"listeners": "SASL_SSL://127.0.0.1:9092"},
        "Listener SASL_SSL://127.0.0.1:9092 is to speak SASL_SSL, which is not supported yet.",
    ),
    (
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
        "authorizer.class.name is set, but access control is not supported yet: leave it out, or say --insecure.",
    ),
    ({"log.dirs": "", "log.dir": ""}, "log.dirs must name at least one folder for the logs."),
    ({"broker.id": "-2"}, "Invalid value -2 for configuration broker.id: Value must be at least 0"),
    ({"node.id": "-2"}, "Invalid value -2 for configuration node.id: Value must be at least 0"),
    ({"broker.id": "one"}, "Invalid value one for configuration broker.id: Not a number of type INT"),
    (
        {"broker.id.generation.enable": "false"},
        "broker.id must be set, since broker.id.generation.enable is false.",
    ),
    (
        {"log.retention.ms": "0"},
        "Invalid value 0 for configuration log.retention.ms: it must be at least 1, or -1 for no limit.",
    ),
]


@pytest.mark.parametrize(("texts", "sentence"), MISTAKES, ids=range(len(MISTAKES)))
def test_one_sentence_for_a_mistake(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(texts)
    assert str(error.value) == sentence


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.properties can't be read: No such file or directory\."):
        load(tmp_path / "nothing.properties")


def test_an_override_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"An override must be key=value, not 'num.partitions'"):
        load(None, ["num.partitions"])


def test_the_effective_keys_are_keys() -> None:
    assert set(BROKER_KEYS) >= EFFECTIVE


def test_the_document_is_made_from_the_tables() -> None:
    assert DOCUMENT.read_text() == markdown(EFFECTIVE, DEFAULTS)


def test_an_id_may_be_asked_for_explicitly() -> None:
    assert settings({"broker.id": "-1"}).broker_id is None
    assert settings({"broker.id": "0"}).configs.int("node.id") == 0


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("group.consumer.assignors", "uniform,sticky", "names sticky, which is not here: there are uniform and range."),
        ("group.consumer.session.timeout.ms", "44999", "it must be from 45000 to 60000."),
        ("group.consumer.heartbeat.interval.ms", "15001", "it must be from 5000 to 15000."),
    ],
)
def test_groups_that_could_not_work(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        settings({name: text})


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "replica.selector.class",
            "com.example.Nearest",
            "replica.selector.class names com.example.Nearest, which is not here: there are "
            "org.apache.kafka.common.replica.LeaderSelector and "
            "org.apache.kafka.common.replica.RackAwareReplicaSelector.",
        ),
        ("replica.socket.timeout.ms", "499", "it must be at least replica.fetch.wait.max.ms, which is 500."),
        ("replica.lag.time.max.ms", "499", "it must be at least replica.fetch.wait.max.ms, which is 500."),
    ],
)
def test_replicas_that_could_not_work(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        settings({name: text})


@pytest.mark.parametrize("text", ["", *SELECTORS])
def test_a_selector_that_is_here(text: str) -> None:
    assert not settings({"replica.selector.class": text}).without_effect


def test_a_member_of_a_group_is_heard_of_before_its_session_ends() -> None:
    low = {"group.consumer.min.session.timeout.ms": "10000", "group.consumer.session.timeout.ms": "10000"}
    assert settings(low).configs.int("group.consumer.session.timeout.ms") == 10_000
    with pytest.raises(ConfigError, match=r"must be less than group\.consumer\.session\.timeout\.ms, which is 10000"):
        settings({**low, "group.consumer.heartbeat.interval.ms": "10000"})
