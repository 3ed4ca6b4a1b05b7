"""Arguments of each broker of `odradek serve --brokers N`: N compatible configurations from one.

    broker.id                 0, 1, 2 if broker.id (or node.id) = 0; 1, 2, 3 if it is not set
    listeners, advertised.listeners, metrics.listener
                              each port is one higher for each broker; port 0 stays 0
    log.dirs                  a folder for each broker in each directory: data/broker1, data/broker2
    metadata.log.dir          shared by all, at the place where a single broker has it
    state topics              three replicas, two of which have every acknowledged transaction; fewer with fewer
                              brokers, so that one of two may be down

Ids are assigned, not generated, because the name of a broker's folder must be known before the tree is open. Ids from 1
on are below those that the tree generates (above reserved.broker.max.id), and are usual in Kafka's examples.

The ports of every listener increase by one, so that users can derive a broker's port from its number. Listeners with
overlapping ports are rejected: other ports could be chosen, but users could not derive them.

A broker's folder name has no dash: to a single broker on the same log.dirs, broker-1 would be partition 1 of the topic
`broker`, to be adopted or quarantined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from odradek.app.config.listener_config import Endpoint
from odradek.app.config.server_config import METRICS_LISTENER, Settings, load
from odradek.app.logging.log_format import TEXT, parse_levels
from odradek.base.units import INT32_MAX, BrokerId
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError
from odradek.core.coordinators.state_topics import OFFSETS_FACTOR, TRANSACTIONS_FACTOR, TRANSACTIONS_MIN_ISR

BROKERS_MAX = 64  # Each is a process of about 40 MB.
FIRST_ID = BrokerId(1)
STATE_REPLICAS = 3  # Kafka's default.
PORT_MAX = 65_535
_META_PROPERTIES = "meta.properties"  # The first process does not import log/.
_EVERY_INTERFACE = frozenset({"", "0.0.0.0", "::"})


class Broker(NamedTuple):
    """One of the brokers, with the arguments of the odradek command from `serve` on."""

    id: BrokerId
    arguments: tuple[str, ...]


def brokers_of(
    count: int,
    config_path: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    insecure: bool = False,
    log_format: str = TEXT,
    log_levels: Sequence[str] = (),
) -> list[Broker]:
    """Return `count` brokers that share the configuration of `odradek serve` with these arguments.

    Raise ConfigError with one sentence for the user.
    """
    if not 1 <= count <= BROKERS_MAX:
        raise ConfigError(f"Invalid --brokers {count}: it must be between 1 and {BROKERS_MAX}.")
    parse_levels(log_levels)
    settings = load(config_path, overrides, insecure=insecure)
    first = FIRST_ID if settings.broker_id is None else settings.broker_id
    if first + count - 1 > INT32_MAX:
        raise ConfigError(
            f"Invalid broker.id {first}: with {count} brokers, it must be at most {INT32_MAX - count + 1}."
        )
    _check_ports(settings, count)
    _check_directories(settings)
    common = [
        *([] if config_path is None else [str(config_path)]),
        *(["--insecure"] if insecure else []),
        f"--log-format={log_format}",
        *(f"--log-level={level}" for level in log_levels),
        *(f"--override={override}" for override in overrides),
        *(f"--override={key}={value}" for key, value in replicas_of_state(count, settings.configs).items()),
    ]
    return [_broker(BrokerId(first + i), i, settings, common) for i in range(count)]


def replicas_of_state(count: int, configs: BrokerConfigs) -> dict[str, str]:
    """Return replication factors and min ISR of the state topics for `count` brokers, where not set."""
    is_set = frozenset(configs.names_set())
    factor = str(min(STATE_REPLICAS, count))
    found = {key: factor for key in (OFFSETS_FACTOR, TRANSACTIONS_FACTOR) if key not in is_set}
    if TRANSACTIONS_MIN_ISR not in is_set:
        replicas = int(found.get(TRANSACTIONS_FACTOR) or configs.int(TRANSACTIONS_FACTOR))
        found[TRANSACTIONS_MIN_ISR] = str(max(1, min(STATE_REPLICAS, replicas) - 1))
    return found


def _check_directories(settings: Settings) -> None:
    """Raise ConfigError if a log directory has a single broker's data instead of broker folders."""
    for directory in settings.log_dirs:
        if (directory / _META_PROPERTIES).exists():
            raise ConfigError(
                f"{directory} contains the data of a single broker: start it without --brokers, or use another folder "
                "(log.dirs) for several brokers."
            )


def _broker(broker_id: BrokerId, i: int, settings: Settings, common: Iterable[str]) -> Broker:
    # After the user's overrides, because the last override of a key is used.
    own = (f"--override={key}={value}" for key, value in _own_settings(broker_id, i, settings).items())
    return Broker(broker_id, ("serve", "--member", *common, *own))


def _own_settings(broker_id: BrokerId, i: int, settings: Settings) -> Mapping[str, str]:
    """Return the settings that broker number `i`, counted from 0, does not share with the others."""
    own = {
        "node.id": str(broker_id),
        "broker.id": str(broker_id),
        "listeners": ",".join(str(one._replace(port=_shifted_port(one.port, i))) for one in settings.listeners),
        "log.dirs": ",".join(str(path / f"broker{broker_id}") for path in settings.log_dirs),
        "metadata.log.dir": str(settings.metadata_dir),
    }
    if settings.advertised:
        own["advertised.listeners"] = ",".join(
            f"{name}://{address._replace(port=_shifted_port(address.port, i))}"
            for name, address in settings.advertised.items()
        )
    if settings.metrics is not None:
        own[METRICS_LISTENER] = str(settings.metrics._replace(port=_shifted_port(settings.metrics.port, i)))
    return own


def _shifted_port(port: int, i: int) -> int:
    return port + i if port else 0


def _check_ports(settings: Settings, count: int) -> None:
    """Raise ConfigError if a port would be too high, or shared by two listeners of any brokers."""
    bound = {f"listener {one.name}": Endpoint(one.host, one.port) for one in settings.listeners}
    if settings.metrics is not None:
        bound[METRICS_LISTENER] = settings.metrics
    advertised = {f"advertised listener {name}": address for name, address in settings.advertised.items()}
    for addresses in (bound, advertised):
        for name, address in addresses.items():
            if address.port + count - 1 > PORT_MAX:
                raise ConfigError(
                    f"With {count} brokers, the port of {name}, {address.port}, must be at most {PORT_MAX - count + 1}."
                )
        for one, other in _port_conflicts(addresses, count):
            raise ConfigError(
                f"With {count} brokers, {one} uses ports {_range(addresses[one].port, count)}, and {other} uses "
                f"ports {_range(addresses[other].port, count)}: their ports must be at least {count} apart."
            )


def _port_conflicts(addresses: Mapping[str, Endpoint], count: int) -> Iterator[tuple[str, str]]:
    for one, other in combinations(addresses, 2):
        (host, port), (other_host, other_port) = addresses[one], addresses[other]
        is_one_host = host == other_host or not _EVERY_INTERFACE.isdisjoint((host, other_host))
        if is_one_host and port and other_port and abs(port - other_port) < count:
            yield one, other


def _range(port: int, count: int) -> str:
    return f"{port} to {port + count - 1}"
