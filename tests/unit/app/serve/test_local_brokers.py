"""Settings of several local brokers, derived from one configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.app.commands.serve_command import parse
from odradek.app.config.server_config import Settings, load
from odradek.app.serve.local_brokers import BROKERS_MAX, brokers_of
from odradek.base.units import INT32_MAX
from odradek.core.configs.definition import ConfigError
from odradek.core.coordinators.state_topics import OFFSETS_FACTOR, TRANSACTIONS_FACTOR, TRANSACTIONS_MIN_ISR
from odradek.log.files.log_file_names import parse_partition


def settings_of(count: int, *overrides: str, path: Path | None = None, insecure: bool = False) -> list[Settings]:
    """Return the settings that each broker parses from its arguments."""
    found = []
    for broker in brokers_of(count, path, overrides, insecure=insecure):
        command, *arguments = broker.arguments
        serve = parse(arguments)
        assert command == "serve"
        assert serve is not None
        settings = load(serve.config_path, serve.overrides, insecure=serve.is_insecure)
        assert settings.broker_id == broker.id
        found.append(settings)
    return found


def test_default_settings_differ_in_id_port_and_directory() -> None:
    brokers = settings_of(3)
    assert [one.broker_id for one in brokers] == [1, 2, 3]
    assert [str(*one.listeners) for one in brokers] == [f"PLAINTEXT://127.0.0.1:{port}" for port in (9092, 9093, 9094)]
    assert [one.log_dirs for one in brokers] == [(Path(f"odradek-data/broker{i}"),) for i in (1, 2, 3)]
    assert {one.metadata_dir for one in brokers} == {load().metadata_dir}
    assert not any(one.advertised or one.metrics for one in brokers)


@pytest.mark.parametrize("key", ["broker.id", "node.id"])
def test_broker_ids_count_up_from_the_configured_one(key: str, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"{key}=0\nnum.partitions=7\n")
    brokers = settings_of(2, path=path)
    assert [one.broker_id for one in brokers] == [0, 1]
    assert {one.configs.int("num.partitions") for one in brokers} == {7}


def test_generated_broker_id_is_replaced() -> None:
    assert [one.broker_id for one in settings_of(2, "broker.id=-1")] == [1, 2]


def test_fixed_ports_count_up_and_port_0_is_kept() -> None:
    brokers = settings_of(
        2,
        "listeners=A://:9092,B://[::1]:0,C://127.0.0.1:9094",
        "advertised.listeners=A://kafka.example.org:19092,C://kafka.example.org:19094",
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
        "inter.broker.listener.name=A",
        "metrics.listener=127.0.0.1:9100",
        insecure=True,
    )
    for i, one in enumerate(brokers):
        assert [str(listener) for listener in one.listeners] == [
            f"A://:{9092 + i}",
            "B://[::1]:0",
            f"C://127.0.0.1:{9094 + i}",
        ]
        assert {name: str(address) for name, address in one.advertised.items()} == {
            "A": f"kafka.example.org:{19092 + i}",
            "C": f"kafka.example.org:{19094 + i}",
        }
        assert str(one.metrics) == f"127.0.0.1:{9100 + i}"


def test_host_and_port_keys_count_up() -> None:
    brokers = settings_of(
        2, "host.name=localhost", "port=9000", "advertised.host.name=example.org", "advertised.port=80"
    )
    assert [str(*one.listeners) for one in brokers] == ["PLAINTEXT://localhost:9000", "PLAINTEXT://localhost:9001"]
    assert [str(one.advertised["PLAINTEXT"]) for one in brokers] == ["example.org:80", "example.org:81"]


def test_brokers_have_own_folders_in_log_dirs_and_share_the_metadata() -> None:
    brokers = settings_of(2, "log.dirs=/one, /two", "broker.id=5")
    assert [one.log_dirs for one in brokers] == [
        (Path("/one/broker5"), Path("/two/broker5")),
        (Path("/one/broker6"), Path("/two/broker6")),
    ]
    assert {one.metadata_dir for one in brokers} == {Path("/one")}
    assert {one.metadata_dir for one in settings_of(2, "metadata.log.dir=/three")} == {Path("/three")}


def test_broker_folder_name_is_not_a_partition_name() -> None:
    """Otherwise a single broker with the same log.dirs would quarantine it as one of its logs."""
    for one in settings_of(3):
        assert parse_partition(one.log_dirs[0].name) is None


@pytest.mark.parametrize(
    ("count", "overrides", "factors"),
    [
        (1, (), (1, 1, 1)),
        (2, (), (2, 2, 1)),
        (3, (), (3, 3, 2)),
        (9, (), (3, 3, 2)),
        (3, ("offsets.topic.replication.factor=1",), (1, 3, 2)),
        (3, ("transaction.state.log.replication.factor=1",), (3, 1, 1)),
        (3, ("transaction.state.log.min.isr=3",), (3, 3, 3)),
        (5, ("transaction.state.log.replication.factor=5",), (3, 5, 2)),
    ],
)
def test_replication_of_internal_topics_depends_on_the_number_of_brokers(
    count: int, overrides: tuple[str, ...], factors: tuple[int, int, int]
) -> None:
    keys = (OFFSETS_FACTOR, TRANSACTIONS_FACTOR, TRANSACTIONS_MIN_ISR)
    for one in settings_of(count, *overrides):
        assert tuple(one.configs.int(key) for key in keys) == factors


def test_log_options_are_passed_to_the_brokers() -> None:
    (broker,) = brokers_of(1, log_format="json", log_levels=["DEBUG", "odradek.net=ERROR"])
    serve = parse(broker.arguments[1:])
    assert serve is not None
    assert (serve.log_format, serve.log_levels) == ("json", ("DEBUG", "odradek.net=ERROR"))


@pytest.mark.parametrize(
    ("count", "overrides", "sentence"),
    [
        (0, [], f"Invalid --brokers 0: it must be between 1 and {BROKERS_MAX}."),
        (BROKERS_MAX + 1, [], f"Invalid --brokers 65: it must be between 1 and {BROKERS_MAX}."),
        (2, [f"broker.id={INT32_MAX}"], "Invalid broker.id 2147483647: with 2 brokers, it must be at most 2147483646."),
        (
            3,
            ["listeners=PLAINTEXT://127.0.0.1:65534"],
            "With 3 brokers, the port of listener PLAINTEXT, 65534, must be at most 65533.",
        ),
        (
            3,
            [
                "listeners=A://127.0.0.1:9092,B://127.0.0.1:9094",
                "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name=A",
            ],
            "With 3 brokers, listener A uses ports 9092 to 9094, and listener B uses ports 9094 to 9096: "
            "their ports must be at least 3 apart.",
        ),
        (
            2,
            ["metrics.listener=127.0.0.1:9093"],
            "With 2 brokers, listener PLAINTEXT uses ports 9092 to 9093, and metrics.listener uses ports 9093 to "
            "9094: their ports must be at least 2 apart.",
        ),
        (
            2,
            [
                "listeners=A://127.0.0.1:9092,B://127.0.0.1:9192",
                "advertised.listeners=A://example.org:1,B://example.org:2",
                "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name=A",
            ],
            "With 2 brokers, advertised listener A uses ports 1 to 2, and advertised listener B uses ports 2 to 3: "
            "their ports must be at least 2 apart.",
        ),
    ],
)
def test_invalid_combinations_are_refused(count: int, overrides: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        brokers_of(count, None, overrides)
    assert str(caught.value) == sentence


def test_different_hosts_may_use_the_same_port() -> None:
    listeners = "listeners=A://127.0.0.1:9092,B://127.0.0.2:9092"
    protocols = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    assert len(settings_of(3, listeners, protocols, "inter.broker.listener.name=A")) == 3


def test_invalid_settings_are_refused_before_any_broker_starts() -> None:
    with pytest.raises(ConfigError, match="accepts unauthenticated connections"):
        brokers_of(3, None, ["listeners=PLAINTEXT://:9092"])
    with pytest.raises(ConfigError, match="--log-level"):
        brokers_of(3, log_levels=["LOUD"])
