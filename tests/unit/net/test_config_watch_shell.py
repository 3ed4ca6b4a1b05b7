"""A running broker that watches configurations changed by another session in its tree."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.app.serve.broker_startup import RunningBroker
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.coordination.tree import Unavailable
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.net.cluster.config_watch import ConfigWatch
from odradek.testing.embedded_broker import Broker
from support.asking import created, produce
from support.config_watching import ALL, SET, Line, Side, T
from support.configuring import BROKER, TOPIC, altered, described
from support.raw_client import RawClient
from support.waiting import until

ME = BrokerId(1)
DONE = (ErrorCode.NONE, "")


class Watched:
    """A broker that watches its tree through `line`, and another session of that tree."""

    def __init__(self, directory: Path) -> None:
        self.broker = Broker({"broker.id": "1"}, directory=directory).start()
        self.client = RawClient(self.broker.port)
        created(self.client, "t")
        (path,) = directory.rglob(METADATA_FILE)
        self.other = Side(SqliteTree(path, poll_ms=5, durable=False), BrokerConfigs.parse({}))
        self.line: Line | None = None
        assert self.broker._host is not None
        self.broker._host.run_query(self._watch)

    async def _watch(self, running: RunningBroker) -> None:
        self.line = Line(running._tree)
        changes = running.shell.effects.writers.alter_configs.__self__  # type: ignore[attr-defined]  # Of ConfigChanges.
        running.shell.watch_configs(ConfigWatch(self.line, ME, changes))  # type: ignore[arg-type]

    def has(self, kind: int, name: str, key: str, value: str) -> bool:
        return described(self.client, kind, name, key)[key][0] == value

    def close(self) -> None:
        self.client.socket.close()
        self.broker.close()
        self.other.tree.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.close()


def test_clients_see_configurations_changed_by_another_broker(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(5):
        assert produce(watched.client, "t", b"x" * 500)[0] == ErrorCode.NONE
    watched.other.alter({T: [("max.message.bytes", SET, "200")], ALL: [("log.retention.ms", SET, "777")]})
    until(lambda: watched.has(TOPIC, "t", "max.message.bytes", "200"))
    until(lambda: watched.has(BROKER, "1", "log.retention.ms", "777"))
    assert watched.has(TOPIC, "t", "retention.ms", "777")
    assert produce(watched.client, "t", b"x" * 500)[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert caplog.text.count("topic t changed: max.message.bytes=200") == 2  # By author and reader.


def test_own_changes_are_applied_once(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for number in range(20):
        assert altered(watched.client, TOPIC, "t", ("retention.ms", SET, str(number))) == DONE
        assert watched.has(TOPIC, "t", "retention.ms", str(number))
        assert altered(watched.client, BROKER, "", ("log.segment.bytes", SET, str(2_000_000 + number))) == DONE
    watched.other.alter({T: [("segment.ms", SET, "5")]})
    until(lambda: watched.has(TOPIC, "t", "segment.ms", "5"))
    assert caplog.text.count("topic t changed: retention.ms") == 20
    assert caplog.text.count("all brokers changed") == 20


def test_changes_of_both_sessions_are_merged(watched: Watched) -> None:
    for number in range(50):
        watched.other.alter({T: [("retention.ms", SET, str(number))]})
        assert altered(watched.client, TOPIC, "t", ("segment.ms", SET, str(number + 1))) == DONE
        watched.other.alter({ALL: [("log.retention.bytes", SET, str(number))]})
    until(lambda: watched.has(TOPIC, "t", "retention.ms", "49"))
    until(lambda: watched.has(BROKER, "1", "log.retention.bytes", "49"))
    assert watched.has(TOPIC, "t", "segment.ms", "50")


def test_unreachable_tree_is_read_later(watched: Watched) -> None:
    assert watched.line is not None
    watched.line.failure = Unavailable(detail="nobody there")
    watched.other.alter({T: [("retention.ms", SET, "5")]})
    assert altered(watched.client, TOPIC, "t", ("segment.ms", SET, "7")) == DONE
    watched.line.failure = None
    until(lambda: watched.has(TOPIC, "t", "retention.ms", "5"))
    watched.other.alter({T: [("retention.ms", SET, "6")]})
    until(lambda: watched.has(TOPIC, "t", "retention.ms", "6"))


@pytest.mark.waits
@pytest.mark.parametrize("kills", [False, True])
def test_broker_stops_during_notifications(tmp_path: Path, caplog: pytest.LogCaptureFixture, kills: bool) -> None:
    watched = Watched(tmp_path)
    for _ in range(200):
        watched.other.tree.create(
            f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}",
            layout.encode_config_change("topics/t"),
            sequential=True,
        )
    (watched.broker.kill if kills else watched.broker.stop)()
    watched.other.alter({T: [("retention.ms", SET, "5")]})
    watched.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
