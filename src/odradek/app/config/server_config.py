"""Settings of a broker, parsed from server.properties and --override.

The names, types and rules are Kafka's (core/configs). This module parses them from text, derives the shell's settings
and lists the keys in use that have no effect yet. Three defaults differ from Kafka: the listener is on loopback, the
data directory is ./odradek-data instead of /tmp/kafka-logs, and the rebalance protocol `streams` is missing. Without
`zookeeper.connect` there are no other brokers, so state topics have one replica.

`python -m odradek.app.config.server_config` prints docs/CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from odradek.app.config.effective import EFFECTIVE
from odradek.app.config.listener_config import (
    Endpoint,
    Listener,
    SecurityProtocol,
    between_listeners,
    parse_address,
    parse_advertised,
    parse_listeners,
)
from odradek.app.config.listener_tls import names_of, parse_tls, requires_certificates
from odradek.app.config.properties import read_properties
from odradek.base.units import BrokerId
from odradek.core.configs import key_relations
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError, raise_all
from odradek.core.configs.unknown_keys import refusal_reason, unknown
from odradek.core.coordinators.state_topics import ALONE
from odradek.core.groups.assignors import ASSIGNORS, CLASSES
from odradek.core.partition.replica_selector import SELECTORS

if TYPE_CHECKING:
    from odradek.tls.tls_config import TlsConfig

T = TypeVar("T")

# Not a Kafka key: it is in no table, and DescribeConfigs does not return it.
METRICS_LISTENER = "metrics.listener"
CONNECT, SESSION_MS = "zookeeper.connect", "zookeeper.session.timeout.ms"
PROTOCOLS, STREAMS = "group.coordinator.rebalance.protocols", "streams"
DEFAULTS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dir": "odradek-data",
    PROTOCOLS: "classic,consumer",  # Kafka's default also has streams.
}
# Brokers of one machine are not separated by a network: replace a paused broker as fast as Kafka before KIP-537.
SINGLE_MACHINE_DEFAULTS = DEFAULTS | ALONE | {SESSION_MS: "6000"}


class Settings(NamedTuple):
    """Settings of a broker at startup: sizes in bytes, times in ms.

    None and -1 have Kafka's meaning of not set or no limit.

    - `broker_id` None: use the id in meta.properties, or the next above `reserved_broker_id_max`.
    - `tls` has the TLS configuration of each TLS listener.
    - `advertised` has the listeners whose advertised address differs from the configured address.
    - `metrics` is the address of the Prometheus endpoint, if any.
    - `without_effect` names the keys that are set and known to Kafka but have no effect here.
    - `unknown` names the keys that are not Kafka's, such as a vendor's.
    - `insecure` allows listeners that accept unauthenticated connections from the network.
    - `is_member` is true if the broker shares its metadata with others.
    """

    configs: BrokerConfigs
    broker_id: BrokerId | None
    rack: str | None
    listeners: tuple[Listener, ...]
    tls: Mapping[str, TlsConfig]
    advertised: Mapping[str, Endpoint]
    log_dirs: tuple[Path, ...]
    metadata_dir: Path
    reserved_broker_id_max: int
    request_bytes_max: int
    queued_requests_max: int
    queued_request_bytes_max: int
    connections_max: int
    connections_per_ip_max: int
    connections_idle_ms_max: int
    listen_backlog: int
    socket_receive_buffer_bytes: int
    socket_send_buffer_bytes: int
    without_effect: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    metrics: Endpoint | None = None
    insecure: bool = False
    is_member: bool = False


def load(path: Path | None = None, overrides: Iterable[str] = (), *, insecure: bool = False) -> Settings:
    """Read a properties file, apply `key=value` overrides, and check the result.

    `insecure` allows listeners that accept unauthenticated connections from the network. Raise ConfigError with one
    sentence for each problem.
    """
    texts = read_properties(path) if path is not None else {}
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"Invalid --override {override!r}: use key=value.")
        texts[name.strip()] = value
    return settings(texts, insecure=insecure)


def settings(texts: Mapping[str, str], *, insecure: bool = False) -> Settings:
    """Return the settings of a broker configured with these texts. Raise ConfigError."""
    problems: list[str] = []
    metrics = parse_or_collect(problems, lambda: _metrics(texts.get(METRICS_LISTENER, ""), insecure))
    texts = {name: text for name, text in texts.items() if name != METRICS_LISTENER}
    unknown_names = tuple(name for name in unknown(texts) if refusal_reason(name) is None)
    texts = {name: text for name, text in texts.items() if name not in unknown_names}
    defaults = DEFAULTS if texts.get(CONNECT, "").strip() else SINGLE_MACHINE_DEFAULTS
    configs = parse_or_collect(problems, lambda: BrokerConfigs.parse(texts, defaults=defaults))
    if configs is None:
        raise_all(problems)
        raise AssertionError("an unparsed value is a problem, which was raised")
    problems += [*key_relations.problems(configs), *_unsupported_settings(configs)]
    listeners = parse_or_collect(problems, lambda: parse_listeners(configs)) or ()
    tls = parse_or_collect(problems, lambda: parse_tls(configs, listeners))
    advertised = parse_or_collect(problems, lambda: parse_advertised(configs, listeners)) if listeners else None
    if listeners:
        problems += between_listeners(configs, listeners, advertised)
    if listeners and tls is not None:
        parse_or_collect(problems, lambda: check_safe(configs, listeners, tls, insecure))
    broker_id = parse_or_collect(problems, lambda: _broker_id(configs))
    is_member = bool(configs.optional_str(CONNECT))
    log_dirs = tuple(Path(text) for text in configs.list("log.dirs") or configs.list("log.dir") if text)
    if not log_dirs:
        problems.append("At least one log directory must be defined via log.dirs or log.dir.")
    raise_all(problems)
    assert tls is not None, "an unparsed value is a problem, which was raised"
    metadata_dir = configs.optional_str("metadata.log.dir")
    return Settings(
        configs=configs,
        broker_id=broker_id,
        rack=configs.optional_str("broker.rack"),
        listeners=listeners,
        tls=tls,
        advertised=advertised or {},
        log_dirs=log_dirs,
        metadata_dir=Path(metadata_dir) if metadata_dir else log_dirs[0],
        reserved_broker_id_max=configs.int("reserved.broker.max.id"),
        request_bytes_max=configs.int("socket.request.max.bytes"),
        queued_requests_max=configs.int("queued.max.requests"),
        queued_request_bytes_max=configs.int("queued.max.request.bytes"),
        connections_max=configs.int("max.connections"),
        connections_per_ip_max=configs.int("max.connections.per.ip"),
        connections_idle_ms_max=configs.int("connections.max.idle.ms"),
        listen_backlog=configs.int("socket.listen.backlog.size"),
        socket_receive_buffer_bytes=configs.int("socket.receive.buffer.bytes"),
        socket_send_buffer_bytes=configs.int("socket.send.buffer.bytes"),
        without_effect=tuple(_without_effect(configs, tls)),
        unknown=unknown_names,
        metrics=metrics,
        insecure=insecure,
        is_member=is_member,
    )


def _without_effect(configs: BrokerConfigs, tls: Mapping[str, TlsConfig]) -> Iterator[str]:
    of_listeners = names_of(tls)
    for name in configs.names_set():
        if name not in EFFECTIVE and name not in of_listeners:
            yield name
        elif name == PROTOCOLS and STREAMS in configs.list(name):
            yield f"{name}={STREAMS}"


def _broker_id(configs: BrokerConfigs) -> BrokerId | None:
    number = configs.int("node.id")
    if number >= 0:
        return BrokerId(number)
    if not configs.bool("broker.id.generation.enable"):
        raise ConfigError("broker.id must be greater than or equal to 0, since broker.id.generation.enable is false.")
    return None


def _unsupported_settings(configs: BrokerConfigs) -> Iterator[str]:
    """Yield problems of settings that promise unsupported behaviour: they are rejected, not ignored."""
    assignors = [name for name in configs.list("group.consumer.assignors") if name not in (*ASSIGNORS, *CLASSES)]
    if assignors:
        supported = " or ".join(ASSIGNORS)
        yield f"Unsupported assignor '{assignors[0]}' in group.consumer.assignors: use {supported}."
    selector = configs.optional_str("replica.selector.class")
    if selector and selector not in SELECTORS:
        supported = " or ".join(SELECTORS)
        yield f"Unsupported replica.selector.class '{selector}': use {supported}."


def parse_or_collect(problems: list[str], read: Callable[[], T]) -> T | None:
    """Return the parsed value, or None after adding its error to the problems."""
    try:
        return read()
    except ConfigError as error:
        problems.append(str(error))
        return None


def check_safe(
    configs: BrokerConfigs, listeners: Sequence[Listener], tls: Mapping[str, TlsConfig], insecure: bool
) -> None:
    """Raise ConfigError for listeners that accept unauthenticated network clients, unless insecure."""
    for listener in listeners:
        secure = tls.get(listener.name)
        if listener.protocol is not SecurityProtocol.PLAINTEXT and secure is None:
            raise ConfigError(f"Listener {listener} uses {listener.protocol.value}, which is not supported yet.")
        if not (listener.is_loopback or requires_certificates(secure) or insecure):
            advice = "" if secure is None else "set ssl.client.auth=required, "
            raise ConfigError(
                f"Listener {listener} accepts unauthenticated connections from the network: "
                f"bind it to 127.0.0.1, {advice}or pass --insecure to allow this."
            )
    if configs.str("authorizer.class.name") and not insecure:
        raise ConfigError(
            "authorizer.class.name is set, but access control is not supported yet: remove it, or pass --insecure."
        )


def _metrics(text: str, insecure: bool) -> Endpoint | None:
    if not text.strip():
        return None
    address = parse_address(METRICS_LISTENER, text)
    if not (address.is_loopback or insecure):
        raise ConfigError(
            f"{METRICS_LISTENER} {address} exposes the metrics to the network without authentication: "
            "bind it to 127.0.0.1, or pass --insecure to allow this."
        )
    return address


def _documentation() -> str:
    from odradek.app.config.config_documentation import markdown

    return markdown(EFFECTIVE, DEFAULTS)


if __name__ == "__main__":
    print(_documentation(), end="")
