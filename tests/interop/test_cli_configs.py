"""`odradek topic config` and `odradek broker config`, as typed by a user, with an Odradek broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.app.main import main
from support.serving import Serving

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    secret = {"password.encoder.secret": "of-the-encoder"}
    with Serving(tmp_path_factory.mktemp("broker"), **{"broker.id": "1"}, **secret) as broker:
        yield broker


@pytest.fixture
def cli(serving: Serving, capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "-b", serving.address])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def topic(cli: Cli, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    assert cli("topic", "create", name)[0] == 0
    return name


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()[2:]]


def test_a_topic_is_shown_and_changed(cli: Cli, topic: str) -> None:
    assert cli("topic", "config", topic) == (0, "key   value   set for\n" + "─" * 21 + "\n", "")
    done = cli("topic", "config", topic, "--set", "retention.ms=86400000", "--append", "cleanup.policy=compact")
    assert done == (0, f"topic {topic}: retention.ms=86400000, cleanup.policy + compact\n", "")
    assert rows(cli("topic", "config", topic)[1]) == [
        ["cleanup.policy", "delete,compact", "topic"],
        ["retention.ms", "86400000", "topic"],
    ]
    done = cli("topic", "config", topic, "--delete", "retention.ms", "--subtract", "cleanup.policy=delete")
    assert done == (0, f"topic {topic}: retention.ms deleted, cleanup.policy - delete\n", "")
    (only,) = json.loads(cli("topic", "config", topic, "--json")[1])
    assert only == {
        "key": "cleanup.policy",
        "value": "compact",
        "set_for": "topic",
        "read_only": False,
        "secret": False,
    }
    everything = rows(cli("topic", "config", topic, "--all")[1])
    assert ["retention.ms", "604800000", "default"] in everything and len(everything) > 25


def test_a_dry_run_changes_nothing(cli: Cli, topic: str) -> None:
    status, out, _ = cli("topic", "config", topic, "--set", "retention.ms=5", "--dry-run")
    assert (status, out) == (0, f"topic {topic}: retention.ms=5 (not applied: --dry-run)\n")
    status, _, err = cli("topic", "config", topic, "--set", "retention.ms=soon", "--dry-run")
    assert status == 1 and "Not a number of type LONG (INVALID_CONFIG)" in err
    assert rows(cli("topic", "config", topic)[1]) == []


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["--set", "retention.sm=5"], 1, "did you mean retention.ms?"),
        (["--set", "log.retention.ms=5"], 1, "did you mean retention.ms?"),
        (["--append", "retention.ms=5"], 1, "its type is not LIST"),
        (["--set", "retention.ms=5", "--delete", "retention.ms"], 2, "duplicate key 'retention.ms'"),
        (["--set", "retention.ms=5", "--set", "retention.ms=6"], 2, "duplicate key 'retention.ms'"),
        (["--set", "retention.ms"], 2, "use --set name=value"),
        (["--set-from", "/no/such/file"], 2, "/no/such/file"),
    ],
)
def test_topic_config_mistakes_get_one_sentence(
    cli: Cli, serving: Serving, arguments: list[str], status: int, sentence: str
) -> None:
    cli("topic", "create", "wrong", "--if-not-exists")
    got, out, err = cli("topic", "config", "wrong", *arguments)
    assert (got, out) == (status, "") and sentence in err and err.count("\n") == 1
    assert cli("topic", "config", "nowhere", *arguments)[0] != 0


def test_brokers_are_shown_and_changed(cli: Cli, topic: str) -> None:
    status, out, _ = cli("broker", "config")
    assert status == 0 and ["broker.id", "1", "server.properties"] in rows(out)
    assert rows(cli("broker", "config", "--default")[1]) == []
    done = cli("broker", "config", "--default", "--set", "log.retention.ms=86400000")
    assert done == (0, "all brokers: log.retention.ms=86400000\n", "")
    assert rows(cli("broker", "config", "--default")[1]) == [["log.retention.ms", "86400000", "all", "brokers"]]
    assert rows(cli("topic", "config", topic)[1]) == [["retention.ms", "86400000", "all", "brokers"]]
    assert cli("broker", "config", "1", "--set", "log.retention.ms=5")[:2] == (0, "broker 1: log.retention.ms=5\n")
    assert rows(cli("topic", "config", topic)[1]) == [["retention.ms", "5", "broker"]]
    assert cli("broker", "config", "1", "--delete", "log.retention.ms")[0] == 0
    assert cli("broker", "config", "--default", "--delete", "log.retention.ms")[0] == 0


def test_a_password_comes_from_a_file_and_is_not_shown(cli: Cli, tmp_path: Path) -> None:
    name = "listener.name.x.ssl.keystore.password"
    (tmp_path / "secrets").write_text(f"{name}=open-sesame\n")
    status, out, err = cli("broker", "config", "--set-from", str(tmp_path / "secrets"))
    assert (status, out, err) == (0, f"broker 1: {name}=(hidden)\n", "")
    assert [name, "(hidden)", "broker"] in rows(cli("broker", "config")[1])
    assert cli("broker", "config", "--delete", name)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["1", "--set", "num.partitions=2"], 1, "Cannot update these configs dynamically: [num.partitions]"),
        (["7"], 1, "broker 7 is not in the cluster: choose one of 1"),
        (["1", "--default"], 2, "--default applies to all brokers"),
        (["--set", "log.retention.msx=2"], 1, "Did you mean 'log.retention.ms'?"),
    ],
)
def test_broker_config_mistakes_get_one_sentence(cli: Cli, arguments: list[str], status: int, sentence: str) -> None:
    got, out, err = cli("broker", "config", *arguments)
    assert (got, out) == (status, "") and sentence in err and err.count("\n") == 1
