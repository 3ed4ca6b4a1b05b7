"""Settings from server.properties and overrides: the format, the safe defaults, and one sentence for each error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.app.config.config_documentation import markdown
from odradek.app.config.effective import EFFECTIVE
from odradek.app.config.listener_config import Endpoint, Listener, SecurityProtocol
from odradek.app.config.properties import parse_properties
from odradek.app.config.server_config import DEFAULTS, load, settings
from odradek.core.configs.broker_keys import BROKER_KEYS, broker_key
from odradek.core.configs.definition import ConfigError
from odradek.core.configs.former_keys import RENAMED
from odradek.core.configs.topic_keys import TOPIC_KEYS
from odradek.core.configs.unknown_keys import nearest
from odradek.core.partition.replica_selector import SELECTORS

DOCUMENT = Path(__file__).parents[4] / "docs" / "CONFIGURATION.md"


def test_properties_format_is_parsed() -> None:
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


def test_line_continuation_at_the_end_of_the_file_is_ignored() -> None:
    assert parse_properties("a=b\\", "file") == {"a": "b"}


def test_invalid_escape_is_reported_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2 of server\.properties"):
        parse_properties("a=1\nb=\\u12", "server.properties")


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Every text is read or refused with a ConfigError."""
    try:
        parse_properties(text, "file")
    except ConfigError as error:
        assert "\\u" in str(error)


def escaped(text: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H"))


@given(st.dictionaries(st.text(st.characters(max_codepoint=0xD7FF)), st.text(st.characters(max_codepoint=0xD7FF))))
def test_escaped_properties_round_trip(pairs: dict[str, str]) -> None:
    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in pairs.items() if key)
    assert parse_properties(text, "file") == {key: value for key, value in pairs.items() if key}


def test_defaults_apply_to_unset_keys() -> None:
    nothing = settings({})
    assert nothing.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092, SecurityProtocol.PLAINTEXT),)
    assert not nothing.advertised
    assert nothing.log_dirs == (Path("odradek-data"),)
    assert nothing.metadata_dir == Path("odradek-data")
    assert nothing.broker_id is None
    assert nothing.request_bytes_max == 100 * 1024 * 1024
    assert nothing.without_effect == ()


def test_overrides_take_precedence_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=3\nnum.partitions=2\nlog.dirs=a, b\nsasl.kerberos.service.name=kafka\n")
    read = load(path, ["num.partitions=8", "metadata.log.dir=m"])
    assert read.broker_id == 3
    assert read.configs.int("broker.id") == 3
    assert read.configs.int("num.partitions") == 8
    assert read.log_dirs == (Path("a"), Path("b"))
    assert read.metadata_dir == Path("m")
    assert read.without_effect == ("sasl.kerberos.service.name",)


def test_internal_topics_of_a_single_broker_have_one_replica() -> None:
    """With ZooKeeper there may be other brokers, so Kafka's defaults apply."""
    keys = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    more = ("transaction.state.log.min.isr",)
    for overrides, expected in (((), [1, 1, 1]), (("zookeeper.connect=zk:2181",), [3, 3, 2])):
        configs = load(overrides=overrides).configs
        assert [configs.int(key) for key in (*keys, *more)] == expected
    assert load(overrides=["offsets.topic.replication.factor=2"]).configs.int(keys[0]) == 2


def test_checked_keys_have_an_effect() -> None:
    """Of several values in one key, the unsupported ones have no effect."""
    bounds = {f"group.consumer.{which}.session.timeout.ms": "45000" for which in ("min", "max")}
    bounds |= {f"group.consumer.{which}.heartbeat.interval.ms": "5000" for which in ("min", "max")}
    assert settings(bounds).without_effect == ()
    protocols = settings({"group.coordinator.rebalance.protocols": "classic,consumer,streams"})
    assert protocols.without_effect == ("group.coordinator.rebalance.protocols=streams",)
    assert settings({}).configs.list("group.coordinator.rebalance.protocols") == ("classic", "consumer")


def test_sample_file_of_kafka_4_is_accepted() -> None:
    """The keys of Kafka's config/server.properties; only the bind to all interfaces needs a change."""
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
    with pytest.raises(ConfigError, match=r"PLAINTEXT://:9092 accepts unauthenticated connections from the network"):
        settings(texts)
    read = settings(texts, insecure=True)
    assert [str(listener) for listener in read.listeners] == ["PLAINTEXT://:9092"]
    assert read.advertised == {"PLAINTEXT": Endpoint("localhost", 9092)}
    assert "num.io.threads" in read.without_effect


def test_host_and_port_keys_define_a_listener() -> None:
    read = settings({"host.name": "localhost", "port": "9000", "advertised.host.name": "example.org"})
    assert [str(listener) for listener in read.listeners] == ["PLAINTEXT://localhost:9000"]
    assert read.advertised == {"PLAINTEXT": Endpoint("example.org", 9000)}


def test_ipv6_listener_is_parsed() -> None:
    (listener,) = settings({"listeners": "PLAINTEXT://[::1]:9092"}).listeners
    assert (listener.host, listener.is_loopback, str(listener)) == ("::1", True, "PLAINTEXT://[::1]:9092")


MISTAKES: list[tuple[dict[str, str], str]] = [
    ({"num.partition": "3"}, "Unknown configuration key 'num.partition'. Did you mean 'num.partitions'?"),
    ({"num.partitions": "x"}, "Invalid value x for configuration num.partitions: Not a number of type INT"),
    ({"num.partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
    ({"listeners": ""}, "Configuration 'listeners' must not be empty. Valid values include: any non-empty value"),
    (
        {"listeners": "localhost:9092"},
        "Invalid value 'localhost:9092' for configuration listeners: use NAME://host:port.",
    ),
    (
        {"listeners": "PLAINTEXT://127.0.0.1:99999"},
        "Invalid value 'PLAINTEXT://127.0.0.1:99999' for configuration listeners: a port must be between 0 and 65535.",
    ),
    (
        {"listeners": "A://127.0.0.1:1"},
        "No security protocol is defined for listener A: add it to listener.security.protocol.map.",
    ),
    (
        {"listeners": "PLAINTEXT://127.0.0.1:1,plaintext://127.0.0.1:2"},
        "Each listener must have a different name, but listeners contains PLAINTEXT twice.",
    ),
    (
        {
            "listeners": "A://127.0.0.1:1,B://127.0.0.1:1",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        },
        "Each listener must have a different port, but A and B have port 1.",
    ),
    (
        {"listener.security.protocol.map": "A"},
        "Invalid entry 'A' in listener.security.protocol.map: use NAME:PROTOCOL, "
        "with one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.",
    ),
    (
        {"listeners": "C://:1", "controller.listener.names": "C", "listener.security.protocol.map": "C:PLAINTEXT"},
        "listeners has no listener for clients: add one that is not in controller.listener.names.",
    ),
    (
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
    ),
    (
        {"advertised.listeners": "OTHER://h:1"},
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
        "Found OTHER. The valid options based on the current configuration are PLAINTEXT",
    ),
    (
        {"listeners": "PLAINTEXT://10.0.0.1:9092"},
        "Listener PLAINTEXT://10.0.0.1:9092 accepts unauthenticated connections from the network: "
        "bind it to 127.0.0.1, or pass --insecure to allow this.",
    ),
    (
        {"listeners": "SASL_SSL://127.0.0.1:9092"},
        "Listener SASL_SSL://127.0.0.1:9092 uses SASL_SSL, which is not supported yet.",
    ),
    (
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
        "authorizer.class.name is set, but access control is not supported yet: remove it, or pass --insecure.",
    ),
    ({"log.dirs": "", "log.dir": ""}, "At least one log directory must be defined via log.dirs or log.dir."),
    ({"broker.id": "-2"}, "Invalid value -2 for configuration broker.id: Value must be at least 0"),
    ({"node.id": "-2"}, "Invalid value -2 for configuration node.id: Value must be at least 0"),
    ({"broker.id": "one"}, "Invalid value one for configuration broker.id: Not a number of type INT"),
    (
        {"broker.id.generation.enable": "false"},
        "broker.id must be greater than or equal to 0, since broker.id.generation.enable is false.",
    ),
    (
        {"log.retention.ms": "0"},
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    ),
]


@pytest.mark.parametrize(("texts", "sentence"), MISTAKES, ids=range(len(MISTAKES)))
def test_invalid_configuration_gives_one_sentence(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(texts)
    assert str(error.value) == sentence


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read .*nothing\.properties: No such file or directory\."):
        load(tmp_path / "nothing.properties")


def test_invalid_override_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Invalid --override 'num.partitions': use key=value"):
        load(None, ["num.partitions"])


def test_effective_keys_are_known_keys() -> None:
    assert set(BROKER_KEYS) >= EFFECTIVE


def test_document_is_generated_from_the_tables() -> None:
    assert DOCUMENT.read_text() == markdown(EFFECTIVE, DEFAULTS)


def test_broker_id_minus_1_requests_a_generated_id() -> None:
    assert settings({"broker.id": "-1"}).broker_id is None
    assert settings({"broker.id": "0"}).configs.int("node.id") == 0


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "group.consumer.assignors",
            "uniform,sticky",
            "Unsupported assignor 'sticky' in group.consumer.assignors: use uniform or range.",
        ),
        (
            "group.consumer.session.timeout.ms",
            "44999",
            "must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "group.consumer.heartbeat.interval.ms",
            "15001",
            "must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
    ],
)
def test_invalid_group_configs_are_refused(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        settings({name: text})


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "replica.selector.class",
            "com.example.Nearest",
            "Unsupported replica.selector.class 'com.example.Nearest': use "
            "org.apache.kafka.common.replica.LeaderSelector or "
            "org.apache.kafka.common.replica.RackAwareReplicaSelector.",
        ),
        ("replica.socket.timeout.ms", "499", "should always be at least replica.fetch.wait.max.ms"),
        ("replica.lag.time.max.ms", "499", "should always be less than or equal to replica.lag.time.max.ms"),
    ],
)
def test_invalid_replica_configs_are_refused(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        settings({name: text})


@pytest.mark.parametrize("text", ["", *SELECTORS])
def test_supported_replica_selector_has_an_effect(text: str) -> None:
    assert not settings({"replica.selector.class": text}).without_effect


def test_heartbeat_interval_must_be_less_than_the_session_timeout() -> None:
    low = {"group.consumer.min.session.timeout.ms": "10000", "group.consumer.session.timeout.ms": "10000"}
    assert settings(low).configs.int("group.consumer.session.timeout.ms") == 10_000
    with pytest.raises(ConfigError, match=r"must be less than group\.consumer\.session\.timeout\.ms"):
        settings({**low, "group.consumer.heartbeat.interval.ms": "10000"})


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        settings(
            {"num.partitons": "1", "log.cleanup.interval.mins": "1", "num.io.threads": "0", "port": "x", "a.b": ""}
        )
    assert str(error.value).splitlines() == [
        "4 problems in the configuration:",
        "  Unknown configuration key 'num.partitons'. Did you mean 'num.partitions'?",
        "  Configuration key 'log.cleanup.interval.mins' is from an earlier release of Kafka. "
        "Use 'log.retention.check.interval.ms', in milliseconds: 1 minute is 60000.",
        "  Invalid value 0 for configuration num.io.threads: Value must be at least 1",
        "  Invalid value x for configuration port: Not a number of type INT",
    ]
    with pytest.raises(ConfigError, match="3 problems") as error:
        settings({"log.retention.ms": "0", "listeners": "X", "replica.selector.class": "x"})
    assert "Invalid value 'X' for configuration listeners" in str(error.value)


def test_unknown_keys_unlike_kafkas_are_accepted() -> None:
    """Kafka starts with them; a vendor's key may resemble one of Kafka's."""
    names = (
        "confluent.license.topic.replication.factor",
        "kafka.csv.metrics.dir",
        "qwertyuiop",
        "replica.lag.max.messages",
    )
    read = settings(dict.fromkeys(names, "1"))
    assert read.unknown == names
    assert not set(names).intersection(read.configs.names_set())
    assert settings({}).unknown == ()


@pytest.mark.parametrize("name", RENAMED)
def test_former_key_name_is_refused_with_its_successor(name: str) -> None:
    """The successor is an existing key, and the former name is not used with another meaning."""
    with pytest.raises(ConfigError, match=re.escape(RENAMED[name])):
        settings({name: "1"})
    named = re.findall(r"'([a-z.]+)'|--set ([a-z.]+)=", RENAMED[name])
    assert all(one in BROKER_KEYS or one in TOPIC_KEYS for pair in named for one in pair if one)
    assert broker_key(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("num.partitons", "num.partitions"),
        ("log.retention.sm", "log.retention.ms"),
        ("log.retention.mins", "log.retention.minutes"),
        ("log.retention.hour", "log.retention.hours"),
        ("log.flush.interval.mins", None),
        ("log.cleanup.interval.ms", None),
        ("log.segment.ms", None),
        ("log.roll.bytes", None),
        ("Log.Dirs", "log.dirs"),
        ("num_network_threads", "num.network.threads"),
        ("broker.di", "broker.id"),
        ("zookeper.connect", "zookeeper.connect"),
        ("auto.createtopics.enable", "auto.create.topics.enable"),
    ],
)
def test_suggested_key_never_has_another_meaning(name: str, expected: str | None) -> None:
    assert nearest(name) == expected


def test_topic_level_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'retention\.ms' is a topic-level key\. Use 'log\.retention\.ms' or"):
        settings({"retention.ms": "1"})


TWO = "A://127.0.0.1:9091,B://127.0.0.1:9092"
MAP = "A:PLAINTEXT,B:PLAINTEXT"
# Messages of Apache Kafka 3.9.1 under ZooKeeper, and of 4.3.0 for keys unknown to 3.9.1.
RULES: list[tuple[str, str]] = [
    (
        "advertised.listeners=B://h:1 inter.broker.listener.name=A",
        "inter.broker.listener.name must be a listener name "
        "defined in advertised.listeners. The valid options based on currently configured listeners are B",
    ),
    (
        "security.inter.broker.protocol=SSL",
        "inter.broker.listener.name must be a listener name "
        "defined in advertised.listeners. The valid options based on currently configured listeners are A,B",
    ),
    (
        "inter.broker.listener.name=A security.inter.broker.protocol=PLAINTEXT",
        "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
    ),
    (
        "inter.broker.listener.name=C",
        "Listener with name C defined in inter.broker.listener.name not found in listener.security.protocol.map.",
    ),
    ("inter.broker.listener.name=", "The provided listener name is null or empty string"),
    (
        "control.plane.listener.name=C",
        "Listener with C defined in control.plane.listener.name not found in listener.security.protocol.map.",
    ),
    (
        "control.plane.listener.name=B advertised.listeners=A://h:1",
        "control.plane.listener.name must be a listener name "
        "defined in advertised.listeners. The valid options based on currently configured listeners are A",
    ),
    (
        "control.plane.listener.name=A inter.broker.listener.name=A",
        "control.plane.listener.name, when defined, should "
        "have a different value from the inter broker listener name. "
        "Currently they both have the value ListenerName(A)",
    ),
    (
        "early.start.listeners=X",
        "early.start.listeners contains listener X, but this is not contained in listeners or "
        "controller.listener.names",
    ),
    ("broker.id=1 node.id=2", "You must set `node.id` to the same value as `broker.id`."),
    (
        "broker.id=1001 zookeeper.connect=zk:1",
        "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
    ),
    ("log.roll.ms=0", "Invalid value 0 for configuration log.roll.ms: Value must be at least 1"),
    ("log.roll.jitter.ms=-1", "Invalid value -1 for configuration log.roll.jitter.ms: Value must be at least 0"),
    ("log.retention.minutes=0", "log.retention.minutes must be unlimited (-1) or, greater than or equal to 1"),
    (
        "log.cleaner.dedupe.buffer.size=3000000 log.cleaner.threads=4",
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    ),
    ("offsets.topic.compression.codec=9", "offsets.topic.compression.codec: Unknown compression type id: 9"),
    (
        "offsets.commit.required.acks=-2",
        "offsets.commit.required.acks must be greater or equal to -1 and less or equal to "
        "offsets.topic.replication.factor",
    ),
    ("queued.max.request.bytes=100", "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"),
    (
        "max.connections.per.ip=0",
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    ),
    ("max.connections.per.ip.overrides=h", "max.connections.per.ip.overrides must be a list of host:count pairs."),
    (
        "connections.max.idle.ms=50",
        "connection.failed.authentication.delay.ms=100 should always be less than "
        "connections.max.idle.ms=50 to prevent failed authentication responses from timing out",
    ),
    ("group.coordinator.rebalance.protocols=consumer", "Disabling the 'classic' protocol is not supported."),
    (
        "group.share.max.share.sessions=100",
        "group.share.max.share.sessions must be greater than or equal to group.share.max.size",
    ),
    (
        "group.streams.num.standby.replicas=3",
        "group.streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
    ),
    (
        "group.streams.assignment.interval.ms=20000",
        "group.streams.assignment.interval.ms must be less than or equal to group.streams.max.assignment.interval.ms",
    ),
    (
        "group.consumer.min.session.timeout.ms=70000",
        "group.consumer.max.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    (
        "cordoned.log.dirs=/x",
        "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : /x",
    ),
    ("cordoned.log.dirs=*,/x", "When cordoned.log.dirs is set to *, it must not contain other values"),
]


@pytest.mark.parametrize(("pairs", "sentence"), RULES, ids=[pairs for pairs, _ in RULES])
def test_conflicting_keys_are_refused(pairs: str, sentence: str) -> None:
    texts = {"listeners": TWO, "listener.security.protocol.map": MAP}
    texts |= dict(pair.split("=", 1) for pair in pairs.split())
    with pytest.raises(ConfigError) as error:
        settings(texts, insecure=True)
    assert sentence in str(error.value).split("\n  ")


@pytest.mark.parametrize(
    "pairs",
    [
        "inter.broker.listener.name=a advertised.listeners=A://h:1",
        "control.plane.listener.name=B inter.broker.listener.name=A",
        "broker.id=1001 broker.id.generation.enable=false zookeeper.connect=zk:1",
        "log.retention.ms=-1 log.retention.hours=0",
        "queued.max.request.bytes=0",
        "connections.max.idle.ms=-1",
        "cordoned.log.dirs=*",
        "max.connections.per.ip=0 max.connections.per.ip.overrides=127.0.0.1:10",
    ],
)
def test_compatible_keys_are_accepted(pairs: str) -> None:
    texts = {"listeners": TWO, "listener.security.protocol.map": MAP, "inter.broker.listener.name": "A"}
    settings(texts | dict(pair.split("=", 1) for pair in pairs.split()), insecure=True)
