"""`odradek topic config` and `odradek broker config` with a real Apache Kafka 4.4.0."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_peer import REAL_KAFKA, KafkaBroker

from odradek.app.main import main
from support.waiting import until

pytestmark = [*REAL_KAFKA, pytest.mark.own_peer("commands against brokers of Apache Kafka")]


def test_config_commands_work_with_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(port: int, *arguments: str) -> str:
        assert main([*arguments, "-b", f"127.0.0.1:{port}"]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    def shows(port: int, line: str, *arguments: str) -> bool:
        return line.split() in [each.split() for each in run(port, *arguments).splitlines()]

    with KafkaBroker(tmp_path) as kafka:
        run(kafka.port, "topic", "create", "t")
        of_topic, of_all = ("topic", "config", "t"), ("broker", "config", "--default")
        run(kafka.port, *of_topic, "--set", "retention.ms=5000", "--append", "cleanup.policy=compact")
        until(lambda: shows(kafka.port, "retention.ms 5000 topic", *of_topic))
        assert shows(kafka.port, "cleanup.policy delete,compact topic", *of_topic)
        run(kafka.port, *of_topic, "--delete", "retention.ms", "--subtract", "cleanup.policy=delete")
        until(lambda: shows(kafka.port, "cleanup.policy compact topic", *of_topic))
        assert "(not applied: --dry-run)" in run(kafka.port, *of_topic, "--set", "retention.ms=7", "--dry-run")
        run(kafka.port, *of_all, "--set", "log.retention.ms=777000")
        until(lambda: shows(kafka.port, "log.retention.ms 777000 all brokers", *of_all))
        until(lambda: shows(kafka.port, "retention.ms 777000 all brokers", *of_topic))
        run(kafka.port, "broker", "config", "--set", "log.retention.ms=888000")
        until(lambda: shows(kafka.port, "log.retention.ms 888000 broker", "broker", "config", "1"))
        assert main(["broker", "config", "--set", "num.partitions=7", "-b", f"127.0.0.1:{kafka.port}"]) == 1
        assert "Cannot update these configs dynamically" in capsys.readouterr().err
