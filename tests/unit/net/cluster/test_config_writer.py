"""Configurations in a real tree: stored as by Apache Kafka, notified to others, and never permanently unreadable."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import binary, dictionaries, from_type, one_of, recursive, text

from odradek.base.errors import ErrorCode
from odradek.base.secret import Secret
from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import BadZnodeError, encode
from odradek.coordination.passwords import PasswordEncoder
from odradek.coordination.sqlite import SqliteTree
from odradek.core.broker.effects import AlterConfigs, Altered, ConfigOwner, CreateTopics, DeleteTopics
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError
from odradek.core.configs.edits import ConfigEdit, KeyEdit, Operation
from odradek.core.kernel.cluster_view import BrokerInfo, PartitionInfo, TopicInfo
from odradek.net.cluster.config_writer import NOTICE_KEPT_MS, ConfigChanges
from odradek.net.cluster.tree_metadata import Metadata
from support.tree_members import TopicsOfTree

US = BrokerId(1)
T, BROKER, ALL = ConfigOwner(True, "t"), ConfigOwner(False, "1"), ConfigOwner(False, "")
PASSWORD, LOCATION = (f"listener.name.x.ssl.keystore.{what}" for what in ("password", "location"))
FAR = TimestampMs(1 << 50)
SET, DELETE = Operation.SET, Operation.DELETE
PARTITION = PartitionInfo(US, LeaderEpoch(0), (US,), (US,))
Keys = list[tuple[str, Operation, str]]


class World:
    """A tree with topic t, and access to its configurations."""

    def __init__(self, directory: Path, secret: str | None = "hidden") -> None:
        self.tree = SqliteTree(directory / "metadata.sqlite")
        self.metadata = Metadata(self.tree)
        self.metadata.prepare(US, 1000, "cluster")
        self.topics = TopicsOfTree(self.tree, self.metadata)
        self.static = BrokerConfigs.parse({})
        self.bad_location = ""
        encoder = PasswordEncoder(None if secret is None else Secret(secret))
        self.changes = ConfigChanges(self.tree, US, self.static, encoder, self._prepare)

    def _prepare(self, before: BrokerConfigs, after: BrokerConfigs) -> Callable[[], None]:
        if self.bad_location and after.is_set(LOCATION):
            raise ConfigError(self.bad_location)
        return lambda: None

    def make(self, *names: str) -> None:
        topics = (TopicInfo(TopicName(name), Uuid(bytes([n + 1]) * 16), (PARTITION,)) for n, name in enumerate(names))
        assert not self.topics.change(CreateTopics(1, tuple(topics))).refused

    def alter(self, edits: Mapping[ConfigOwner, Keys], *, dry: bool = False, now: TimestampMs | None = None) -> Altered:
        owned = {owner: ConfigEdit(tuple(KeyEdit(*key) for key in keys)) for owner, keys in edits.items()}
        return self.changes.change(AlterConfigs(1, owned, is_dry=dry), TimestampMs(0) if now is None else now)

    def stored(self, path: str) -> dict[str, str]:
        return layout.decode_config(self.tree.get(path)[0])

    def notices(self) -> list[str]:
        names = self.tree.children(layout.CONFIG_CHANGES)
        return [layout.decode_config_change(self.tree.get(f"{layout.CONFIG_CHANGES}/{name}")[0]) for name in names]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.make("t")
    yield made
    made.tree.close()


def test_configurations_are_stored_as_in_kafka(world: World) -> None:
    altered = world.alter(
        {
            T: [("retention.ms", SET, "5")],
            BROKER: [("log.retention.ms", SET, "6")],
            ALL: [("log.retention.ms", SET, "7")],
        }
    )
    assert not altered.refused
    assert world.stored("/config/topics/t") == {"retention.ms": "5"}
    assert world.stored("/config/brokers/1") == {"log.retention.ms": "6"}
    assert world.stored("/config/brokers/<default>") == {"log.retention.ms": "7"}
    assert world.notices() == ["topics/t", "brokers/1", "brokers/<default>"]
    assert altered.topics == {"t": {"retention.ms": "5"}}
    assert altered.broker is not None and altered.broker.int("log.retention.ms") == 6
    assert len(altered.appliers) == 2
    assert world.metadata.topics()[TopicName("t")].configs == {"retention.ms": "5"}


def test_validate_only_request_changes_nothing(world: World) -> None:
    altered = world.alter({T: [("retention.ms", SET, "5")], ALL: [("log.retention.ms", SET, "x")]}, dry=True)
    assert list(altered.refused) == [ALL]
    assert not altered.topics and altered.broker is None and not altered.appliers
    assert world.stored("/config/topics/t") == {} and world.notices() == []


def test_resources_are_changed_or_refused_individually(world: World) -> None:
    nowhere = ConfigOwner(True, "nowhere")
    altered = world.alter(
        {
            nowhere: [("retention.ms", SET, "5")],
            T: [("retention.ms", SET, "5")],
            BROKER: [("num.partitions", SET, "6")],
            ALL: [("log.retention.ms", SET, "7")],
        }
    )
    assert {owner: refused.code for owner, refused in altered.refused.items()} == {
        nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        BROKER: ErrorCode.INVALID_REQUEST,
    }
    assert world.notices() == ["topics/t", "brokers/<default>"]


def test_many_topics_are_changed_in_one_request(world: World) -> None:
    names = [f"t-{number}" for number in range(250)]
    world.make(*names)
    altered = world.alter({ConfigOwner(True, name): [("retention.ms", SET, name[2:] + "00")] for name in names})
    assert not altered.refused and len(altered.topics) == len(world.notices()) == 250
    assert {name: topic.configs for name, topic in world.metadata.topics().items()} == {
        "t": {},
        **{name: {"retention.ms": name[2:] + "00"} for name in names},
    }


def test_successive_changes_are_merged(world: World) -> None:
    world.alter({T: [("cleanup.policy", Operation.APPEND, "compact")]})
    world.alter({T: [("retention.ms", SET, "5")]})
    world.alter({T: [("cleanup.policy", Operation.SUBTRACT, "delete")]})
    assert world.stored("/config/topics/t") == {"cleanup.policy": "compact", "retention.ms": "5"}


def test_missing_configuration_node_is_created(world: World) -> None:
    world.tree.delete("/config/topics/t")
    assert not world.alter({T: [("retention.ms", SET, "5")]}).refused
    assert world.stored("/config/topics/t") == {"retention.ms": "5"}


def test_a_deleted_topic_is_not_configured(world: World) -> None:
    world.topics.change(DeleteTopics(2, {TopicName("t"): Uuid(b"\1" * 16)}))
    altered = world.alter({T: [("retention.ms", SET, "5")]})
    assert altered.refused[T].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.tree.exists("/config/topics/t") is None


def test_old_notifications_are_deleted(world: World) -> None:
    for number in range(3):
        world.alter({T: [("retention.ms", SET, str(number))]})
    assert len(world.notices()) == 3
    made = world.tree.exists(f"{layout.CONFIG_CHANGES}/{world.tree.children(layout.CONFIG_CHANGES)[0]}")
    assert made is not None
    world.alter({T: [("retention.ms", SET, "9")]}, now=TimestampMs(made.ctime + NOTICE_KEPT_MS - 1))
    assert len(world.notices()) == 4
    world.alter({T: [("retention.ms", SET, "10")]}, now=FAR)
    assert world.notices() == []


def test_password_is_stored_encrypted_and_not_logged(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    altered = world.alter({BROKER: [(PASSWORD, SET, "open-sesame"), (LOCATION, SET, "/x")]})
    assert not altered.refused and altered.broker is not None
    assert altered.broker.secret(PASSWORD) == Secret("open-sesame")
    kept = world.stored("/config/brokers/1")
    assert kept[LOCATION] == "/x" and kept[PASSWORD].count(":") == 8
    assert f"broker 1 changed: {PASSWORD}=***, {LOCATION}=/x" in caplog.text
    assert "sesame" not in caplog.text
    assert not any(b"sesame" in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    world.alter({BROKER: [(LOCATION, SET, "/y")]})
    assert world.stored("/config/brokers/1") == {LOCATION: "/y", PASSWORD: kept[PASSWORD]}


def test_password_without_an_encoder_secret_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, secret=None)
    altered = world.alter({BROKER: [(PASSWORD, SET, "open-sesame")]})
    assert altered.refused[BROKER].code == ErrorCode.INVALID_REQUEST
    assert "sesame" not in str(altered.refused[BROKER].detail)
    assert world.tree.exists("/config/brokers/1") is None


def test_password_with_a_lost_secret_is_kept_but_unused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.alter({BROKER: [(PASSWORD, SET, "open-sesame")]})
    kept = world.stored("/config/brokers/1")
    world.tree.close()
    later = World(tmp_path, secret="another")
    configs, _ = later.changes.read_starting_configs()
    assert configs.secret(PASSWORD) is None
    later.alter({BROKER: [(LOCATION, SET, "/x")]})
    assert later.stored("/config/brokers/1") == {**kept, LOCATION: "/x"}
    later.alter({BROKER: [(PASSWORD, DELETE, "")]})
    assert later.stored("/config/brokers/1") == {LOCATION: "/x"}


def test_unusable_key_store_is_refused(world: World) -> None:
    world.bad_location = "there is no store there"
    altered = world.alter({BROKER: [(LOCATION, SET, "/x")], ALL: [("log.retention.ms", SET, "7")]})
    assert altered.refused[BROKER].detail == "there is no store there"
    assert list(altered.refused) == [BROKER]
    assert world.tree.exists("/config/brokers/1") is None


def test_start_without_the_key_store_keeps_other_values(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.alter({BROKER: [(LOCATION, SET, "/x"), ("log.retention.ms", SET, "7")]})
    world.bad_location = "the store is gone"
    configs, _ = world.changes.read_starting_configs()
    assert (configs.int("log.retention.ms"), configs.is_set(LOCATION)) == (7, False)
    assert "ignored the certificates of the dynamic configuration: the store is gone" in caplog.text


JSON = recursive(
    one_of(from_type(int), from_type(bool), text(max_size=9)),
    lambda inner: dictionaries(text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
CONFIG = dictionaries(
    one_of(text(max_size=9), from_type(type(None)).map(lambda _: "log.retention.ms")), JSON, max_size=4
).map(lambda config: encode({"version": 1, "config": config}))


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=one_of(binary(max_size=99), JSON.map(lambda value: encode({"config": value})), CONFIG))
def test_broker_starts_with_any_stored_configuration(world: World, data: bytes) -> None:
    for path in ("/config/brokers/1", "/config/topics/t"):
        if world.tree.exists(path) is None:
            world.tree.create(path)
        world.tree.set(path, data)
    configs, _ = world.changes.read_starting_configs()
    assert configs.for_topic({}).retention_ms >= -1
    altered = world.alter({BROKER: [("log.retention.ms", SET, "7")], T: [("retention.ms", SET, "5")]})
    try:
        kept = layout.decode_config(data)
    except BadZnodeError:
        assert set(altered.refused) == {BROKER, T}
    else:
        assert BROKER not in altered.refused
        assert world.stored("/config/brokers/1") == {**kept, "log.retention.ms": "7"}


def test_registered_broker_does_not_prevent_changes(world: World) -> None:
    world.metadata.register_broker(BrokerInfo(US), lambda: TimestampMs(1), 0)
    assert not world.alter({ALL: [("log.retention.ms", SET, "7")]}).refused
