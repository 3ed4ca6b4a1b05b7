"""Configurations changed by other brokers: read through a tree with two sessions, and applied by a broker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.base.secret import Secret
from odradek.base.units import TopicName
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import encode
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import SessionExpired, Unavailable
from odradek.core.broker.effects import ConfigOwner, DeleteTopics
from odradek.net.cluster.config_watch import NO_FOLDER
from support.config_watching import ALL, BROKER, DELETE, LOCATION, PASSWORD, SET, Line, T, Watching, Writer

WEEK_MS = 604_800_000
FAR = 1 << 50  # With a wrong clock all notifications are old.
TOPIC_T = layout.config(layout.TOPIC_CONFIGS, "t")
OWN = layout.config(layout.BROKER_CONFIGS, "1")


class Two(NamedTuple):
    writer: Writer
    watching: Watching
    line: Line

    def seen(self) -> int:
        """Return the number of existing notifications that were read."""
        seen = self.watching.watch._seen
        return 0 if seen is None else len(seen.names)

    def wait_for_config(self, texts: dict[str, str], topic: str = "t") -> None:
        self.watching.until(lambda: self.watching.set_on(topic) == texts)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    """Yield a broker that has just started, and another one; both know topic t."""
    trees = [SqliteTree(tmp_path / "metadata.sqlite", poll_ms=5, durable=False) for _ in range(2)]
    writer, line = Writer(trees[0]), Line(trees[1])
    watching = Watching(line, tmp_path / "log")  # type: ignore[arg-type]  # As a tree, but for the noting.
    watching.know(*writer.make("t"))
    watching.begin()
    watching.start()
    yield Two(writer, watching, line)
    watching.watch.stop()
    for tree in trees:
        tree.close()


def logged(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


def test_changes_of_another_broker_are_applied(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    writer, watching, _ = two
    before = watching.in_force
    writer.alter({T: [("retention.ms", SET, "5")], ALL: [("log.segment.bytes", SET, "2000000")]})
    writer.alter({BROKER: [("log.retention.bytes", SET, "77")]})
    watching.until(lambda: watching.value("log.retention.bytes") == 77)
    assert watching.set_on() == {"retention.ms": "5"}
    found = watching.log_config()
    assert (found.retention_ms, found.segment_bytes, found.retention_bytes) == (5, 2_000_000, 77)
    assert watching.in_force > before
    writer.alter({T: [("retention.ms", DELETE, "")], ALL: [("log.segment.bytes", DELETE, "")]})
    two.wait_for_config({})
    watching.until(lambda: watching.value("log.segment.bytes") == 1 << 30)
    assert watching.log_config().segment_bytes == 1 << 30
    # Both the author and the reader of a change log it; both run here.
    assert len(logged(caplog, "topic t changed: retention.ms=5")) == 2
    assert len(logged(caplog, "all brokers changed: log.segment.bytes=2000000")) == 2
    assert len(logged(caplog, "broker 1 changed: log.retention.bytes=77")) == 2
    assert len(logged(caplog, "all brokers changed: log.segment.bytes removed")) == 2


def test_many_notifications_of_a_topic_cause_one_read(two: Two) -> None:
    writer, watching, line = two
    before = len(watching.readings)
    writer.alter({T: [("retention.ms", SET, "5")]})
    for _ in range(999):
        writer.notice(layout.encode_config_change("topics/t"))
    line.read.clear()
    two.wait_for_config({"retention.ms": "5"})
    watching.until(lambda: two.seen() == 1000)
    readings = len(watching.readings) - before
    assert line.read.count(TOPIC_T) <= readings
    assert readings < 10
    assert OWN not in line.read
    line.read.clear()
    writer.alter({T: [("retention.ms", SET, "6")]})
    two.wait_for_config({"retention.ms": "6"})
    assert len([path for path in line.read if path.startswith(f"{layout.CONFIG_CHANGES}/")]) == 1


def test_own_notifications_change_nothing(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watching = two.watching
    watching.alter_here({T: [("retention.ms", SET, "5")], ALL: [("log.retention.bytes", SET, "9")]})
    watching.alter_here({BROKER: [(PASSWORD, SET, "open-sesame"), (LOCATION, SET, "/x")]})
    effective, configs = watching.in_force, watching.log_config()
    watching.until(lambda: two.seen() == 3)
    assert watching.in_force == effective
    assert watching.log_config() is configs  # Not even set again.
    assert all(reading is not None and reading.broker is None for reading in watching.readings)
    assert len(logged(caplog, " changed: ")) == 3
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_mixed_burst_of_changes_ends_in_the_state_of_the_tree(two: Two) -> None:
    writer, watching, _ = two
    for number in range(50):
        writer.alter({T: [("retention.ms", SET, str(number))], ALL: [("log.retention.bytes", SET, str(number))]})
        watching.hear()
        watching.alter_here({T: [("segment.ms", SET, str(number + 1))]})
    writer.alter({T: [("retention.ms", SET, "1000")], ALL: [("log.retention.bytes", SET, "1000")]})
    two.wait_for_config({"retention.ms": "1000", "segment.ms": "50"})
    watching.until(lambda: watching.value("log.retention.bytes") == 1000)
    assert watching.log_config().segment_ms == 50


def test_start_skips_old_notifications_and_misses_no_new_ones(
    tmp_path: Path,
) -> None:
    trees = [SqliteTree(tmp_path / "metadata.sqlite", poll_ms=5, durable=False) for _ in range(2)]
    writer, line = Writer(trees[0]), Line(trees[1])
    watching = Watching(line, tmp_path / "log")  # type: ignore[arg-type]
    watching.know(*writer.make("t", "u"))
    for number in range(20):
        writer.alter({T: [("retention.ms", SET, str(number))]})
    writer.notice(b"garbage")
    watching.begin()
    # It has read all configurations, and does not watch yet.
    writer.alter({ConfigOwner(True, "u"): [("retention.ms", SET, "6")]})
    line.read.clear()
    watching.start()
    assert watching.set_on("u") == {"retention.ms": "6"}
    assert TOPIC_T not in line.read
    assert len([path for path in line.read if path.startswith(f"{layout.CONFIG_CHANGES}/")]) == 1
    for tree in trees:
        tree.close()


def test_start_without_a_position_reads_all_configurations(tmp_path: Path) -> None:
    tree = SqliteTree(tmp_path / "metadata.sqlite", durable=False)
    writer, watching = Writer(tree), Watching(tree, tmp_path / "log")
    watching.know(*writer.make("t"))
    writer.alter({T: [("retention.ms", SET, "5")], ALL: [("log.retention.bytes", SET, "9")]})
    watching.start()
    assert watching.set_on() == {"retention.ms": "5"}
    assert watching.value("log.retention.bytes") == 9
    tree.close()


@pytest.mark.parametrize(
    "notice",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{" * 5000,
        b'{"version":2}',
        b'{"version":2,"entity_path":7}',
        b'{"version":1,"entity_type":"topics"}',
        b'{"entity_path":"topics/t"}',
        encode({"version": 2, "entity_path": "topics"}),
        encode({"version": 2, "entity_path": "topics/"}),
        encode({"version": 2, "entity_path": "topics/../t"}),
        encode({"version": 2, "entity_path": "topics/\x00"}),
        encode({"version": 2, "entity_path": "topics/" + "x" * 100_000}),
    ],
    ids=range(14),
)
def test_unreadable_notification_is_skipped_with_one_log_line(
    two: Two, caplog: pytest.LogCaptureFixture, notice: bytes
) -> None:
    path = two.writer.notice(notice)
    two.writer.alter({T: [("retention.ms", SET, "5")]})
    two.wait_for_config({"retention.ms": "5"})
    two.writer.alter({T: [("retention.ms", SET, "6")]})
    two.wait_for_config({"retention.ms": "6"})
    (line,) = logged(caplog, path)
    assert f"failed to read {path}: " in line and len(line) < 1000


@pytest.mark.parametrize("entity", ["users/alice", "clients/c", "users/a/clients/c", "ips/1.2.3.4", "brokers/2", "x/y"])
def test_notifications_of_other_entities_are_ignored(two: Two, caplog: pytest.LogCaptureFixture, entity: str) -> None:
    two.line.read.clear()
    two.writer.notice(layout.encode_config_change(entity))
    two.writer.alter({T: [("retention.ms", SET, "5")]})
    two.wait_for_config({"retention.ms": "5"})
    assert not caplog.records
    assert OWN not in two.line.read


def test_notifications_of_old_brokers_are_read(two: Two) -> None:
    two.writer.put(TOPIC_T, layout.encode_config({"retention.ms": "5"}))
    two.writer.notice(encode({"version": 1, "entity_type": "topics", "entity_name": "t"}))
    two.wait_for_config({"retention.ms": "5"})


def test_topic_with_an_unreadable_znode_keeps_its_configuration(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    two.watching.know(*two.writer.make("u"))
    two.writer.alter({T: [("retention.ms", SET, "5")]})
    two.wait_for_config({"retention.ms": "5"})
    two.writer.put(TOPIC_T, b"garbage")
    two.writer.notice(layout.encode_config_change("topics/t"))
    two.writer.alter({ConfigOwner(True, "u"): [("retention.ms", SET, "6")]})
    two.wait_for_config({"retention.ms": "6"}, "u")
    assert two.watching.set_on() == {"retention.ms": "5"}
    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert f"kept the previous configuration of topic t: failed to read {TOPIC_T}" in line.getMessage()
    two.writer.put(TOPIC_T, layout.encode_config({"retention.ms": "7"}))
    two.writer.notice(layout.encode_config_change("topics/t"))
    two.wait_for_config({"retention.ms": "7"})


def test_invalid_topic_value_is_ignored(two: Two) -> None:
    texts = {"retention.ms": "soon", "segment.bytes": "2000000", "of.another": "kind"}
    two.writer.put(TOPIC_T, layout.encode_config(texts))
    two.writer.notice(layout.encode_config_change("topics/t"))
    two.wait_for_config(texts)
    assert two.watching.log_config().segment_bytes == 2_000_000
    assert two.watching.log_config().retention_ms == WEEK_MS


def test_notifications_deleted_before_the_read_are_detected(two: Two) -> None:
    """A broker whose clock is 15 minutes fast deletes its notifications immediately."""
    for number in range(3):
        two.writer.alter(
            {T: [("retention.ms", SET, str(number))], ALL: [("log.retention.bytes", SET, str(number))]}, now=FAR
        )
        two.wait_for_config({"retention.ms": str(number)})
        two.watching.until(lambda expected=number: two.watching.value("log.retention.bytes") == expected)  # type: ignore[misc]
    assert two.writer.tree.children(layout.CONFIG_CHANGES) == []
    two.line.read.clear()
    two.writer.alter({T: [("retention.ms", SET, "9")]})
    two.wait_for_config({"retention.ms": "9"})
    assert OWN not in two.line.read  # The count is right again: not everything is read.


def test_deleted_notification_folder_may_be_recreated(two: Two) -> None:
    tree = two.writer.tree
    for name in tree.children(layout.CONFIG_CHANGES):
        tree.delete(f"{layout.CONFIG_CHANGES}/{name}")
    tree.delete(layout.CONFIG_CHANGES)
    two.watching.until(lambda: two.watching.watch._seen == NO_FOLDER)
    tree.create(layout.CONFIG_CHANGES)
    two.writer.alter({T: [("retention.ms", SET, "5")]})
    two.wait_for_config({"retention.ms": "5"})
    two.writer.alter({T: [("retention.ms", SET, "6")]})
    two.wait_for_config({"retention.ms": "6"})


def test_invalid_broker_value_is_reported_once_and_skipped(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    texts = {"log.retention.ms": "soon", "num.partitions": "7", "message.max.bytes": "77"}
    two.writer.put(OWN, layout.encode_config(texts))
    two.writer.notice(layout.encode_config_change("brokers/1"))
    two.watching.until(lambda: two.watching.value("message.max.bytes") == 77)
    assert two.watching.value("num.partitions") == 1
    assert two.watching.value("log.retention.ms") == -1, "it may have been meant to keep all"
    for number in range(3):
        two.writer.alter({ALL: [("log.segment.bytes", SET, str(2_000_000 + number))]})
        two.watching.until(
            lambda expected=2_000_000 + number: two.watching.value("log.segment.bytes") == expected  # type: ignore[misc]
        )
    assert len(logged(caplog, "ignored invalid dynamic configuration: Invalid value soon for configuration")) == 1
    assert len(logged(caplog, "ignored invalid dynamic configuration: num.partitions")) == 1


def test_conflicting_broker_values_change_nothing(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    lags = {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"}
    two.writer.put(OWN, layout.encode_config({**lags, "log.retention.bytes": "77"}))
    two.writer.notice(layout.encode_config_change("brokers/1"))
    two.watching.until(lambda: bool(logged(caplog, "ignored the dynamic configuration")))
    assert two.watching.value("log.retention.bytes") == -1
    two.writer.put(OWN, layout.encode_config({"log.retention.bytes": "77"}))
    two.writer.notice(layout.encode_config_change("brokers/1"))
    two.watching.until(lambda: two.watching.value("log.retention.bytes") == 77)


def test_broker_with_an_unreadable_znode_keeps_its_configuration(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    two.writer.alter({BROKER: [("log.retention.bytes", SET, "77")]})
    two.watching.until(lambda: two.watching.value("log.retention.bytes") == 77)
    two.writer.put(OWN, b"garbage")
    two.writer.notice(layout.encode_config_change("brokers/1"))
    two.writer.notice(layout.encode_config_change("brokers/<default>"))
    two.watching.until(lambda: bool(logged(caplog, f"ignored {OWN}")))
    two.writer.put(layout.config(layout.BROKER_CONFIGS, "<default>"), layout.encode_config({"log.roll.ms": "9"}))
    two.writer.notice(layout.encode_config_change("brokers/<default>"))
    two.watching.until(lambda: two.watching.log_config().segment_ms == 9)
    assert two.watching.value("log.retention.bytes") == 77
    assert len(logged(caplog, f"ignored {OWN}")) == 1


def test_passwords_are_decrypted(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    two.writer.alter({BROKER: [(PASSWORD, SET, "open-sesame"), (LOCATION, SET, "/x")]})
    configs = two.watching.harness.configs
    two.watching.until(lambda: configs.secret(PASSWORD) == Secret("open-sesame"))
    assert "sesame" not in caplog.text
    assert len(logged(caplog, f"{PASSWORD}=***")) == 2


def test_unreadable_certificates_keep_the_previous_ones(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    configs = two.watching.harness.configs
    two.writer.alter({BROKER: [(LOCATION, SET, "/x")]})
    two.watching.until(lambda: configs.value(LOCATION) == "/x")
    two.watching.unreadable = "there is no store there"
    two.writer.alter({BROKER: [(LOCATION, SET, "/y"), ("log.retention.bytes", SET, "77")]})
    two.watching.until(lambda: two.watching.value("log.retention.bytes") == 77)
    assert configs.value(LOCATION) == "/x"
    two.writer.alter({ALL: [("log.segment.bytes", SET, "2000000")]})
    two.watching.until(lambda: two.watching.value("log.segment.bytes") == 2_000_000)
    assert len(logged(caplog, "ignored the certificates of the dynamic configuration: there is no store there")) == 1
    two.watching.unreadable = ""
    two.writer.alter({ALL: [("log.segment.bytes", SET, "3000000")]})
    two.watching.until(lambda: configs.value(LOCATION) == "/y")


def test_unreachable_tree_is_reported_once_and_read_again(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    two.line.failure = Unavailable(detail="nobody there")
    assert [two.watching.read() for _ in range(3)] == [None] * 3
    two.writer.alter({T: [("retention.ms", SET, "5")], ALL: [("log.retention.bytes", SET, "9")]}, now=FAR)
    two.line.failure = None
    assert two.watching.read() is not None
    assert two.watching.set_on() == {"retention.ms": "5"}
    assert two.watching.value("log.retention.bytes") == 9
    assert len(logged(caplog, "failed to read changed configurations (will retry): nobody there")) == 1


def test_expired_session_reads_nothing(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    two.line.failure = SessionExpired(detail="over")
    read = two.watching.read()
    assert read is not None and not read.topics and read.broker is None
    assert not caplog.records


def test_deleted_topic_is_not_reset_to_defaults(two: Two) -> None:
    two.writer.alter({T: [("cleanup.policy", SET, "compact")]})
    two.wait_for_config({"cleanup.policy": "compact"})
    (topic,) = two.writer.metadata.topics().values()
    two.writer.topics.change(DeleteTopics(2, {TopicName("t"): topic.id}))
    two.writer.notice(layout.encode_config_change("topics/t"))
    two.watching.know(*two.writer.make("u"))
    two.writer.alter({ConfigOwner(True, "u"): [("retention.ms", SET, "6")]})
    two.wait_for_config({"retention.ms": "6"}, "u")
    assert two.watching.set_on() == {"cleanup.policy": "compact"}


def test_topic_with_a_deleted_configuration_uses_defaults(two: Two) -> None:
    two.writer.alter({T: [("retention.ms", SET, "5")]})
    two.wait_for_config({"retention.ms": "5"})
    two.writer.tree.delete(TOPIC_T)
    two.writer.notice(layout.encode_config_change("topics/t"))
    two.wait_for_config({})


def test_partitions_of_a_topic_outside_the_metadata_apply_changes(two: Two) -> None:
    """A controller creates partitions first, and announces their topic afterwards."""
    two.watching.harness.broker.view.remove(TopicName("t"))
    two.writer.alter({T: [("retention.ms", SET, "5")]})
    two.watching.until(lambda: two.watching.log_config().retention_ms == 5)


def test_stopped_watch_reports_nothing(two: Two) -> None:
    two.watching.watch.stop()
    readings = len(two.watching.readings)
    two.writer.alter({T: [("retention.ms", SET, "5")]})
    two.watching.until(lambda: two.line.tree.get(TOPIC_T)[0] == two.writer.tree.get(TOPIC_T)[0])
    read = two.watching.read()
    assert read is not None and not read.topics
    assert len(two.watching.readings) == readings + 1 and two.watching.set_on() == {}


UNCLEAN = "unclean.leader.election.enable"


def test_controller_learns_where_unclean_elections_are_enabled(two: Two) -> None:
    """For one topic or as the default; not where they are disabled, nor repeatedly."""
    writer, watching, _ = two
    enabled = watching.harness.broker.unclean_enabled
    writer.make("early")  # The controller has not announced it yet.
    writer.alter({T: [(UNCLEAN, SET, "false"), ("retention.ms", SET, "5")]})
    watching.until(lambda: watching.set_on() == {UNCLEAN: "false", "retention.ms": "5"})
    assert not enabled
    writer.alter({T: [(UNCLEAN, SET, "true")], ConfigOwner(True, "early"): [(UNCLEAN, SET, "true")]})
    watching.until(lambda: set(enabled) == {"t", "early"})
    enabled.clear()
    writer.alter({ALL: [(UNCLEAN, SET, "true")]})
    watching.until(lambda: list(enabled) == [None])
    enabled.clear()
    writer.alter({ALL: [("log.retention.bytes", SET, "77")], T: [("retention.ms", SET, "6")]})
    watching.until(lambda: watching.value("log.retention.bytes") == 77)
    assert None not in enabled
    watching.alter_here({ALL: [(UNCLEAN, DELETE, "")]})
    watching.alter_here({ALL: [(UNCLEAN, SET, "true")]})
    assert None in enabled
