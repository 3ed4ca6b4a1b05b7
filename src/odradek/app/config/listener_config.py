"""Listeners parsed from Kafka's `listeners` family of keys, with checks.

    listeners=PLAINTEXT://127.0.0.1:9092,OUTSIDE://[::1]:9094
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL
    advertised.listeners=OUTSIDE://kafka.example.org:9094

A listener without an advertised address returns its configured host to clients. If it listens on every interface, it
returns to each client the address that the client connected to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError


class SecurityProtocol(Enum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


INTER_BROKER_LISTENER = "inter.broker.listener.name"
SECURITY_PROTOCOL = "security.inter.broker.protocol"
_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}")


class Listener(NamedTuple):
    """Configured listener. `host` "" means every interface; with port 0, the system chooses the port."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    def __str__(self) -> str:
        return f"{self.name}://{_bracketed(self.host)}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.host)


class Endpoint(NamedTuple):
    """Address as clients see it."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.host)

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


def _is_loopback(host: str) -> bool:
    # Any other name may resolve to any address.
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


_ENDPOINT = re.compile(r"(?P<name>[A-Za-z0-9_-]+)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]/,\s]*):(?P<port>-?\d{1,10})/?")
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]/,\s]+):(?P<port>\d{1,10})")


def parse_listeners(configs: BrokerConfigs) -> tuple[Listener, ...]:
    """Return the broker's listeners, without those of a KRaft controller. Raise ConfigError."""
    protocols = _protocols(configs.str("listener.security.protocol.map"))
    controllers = {name.upper() for name in configs.list("controller.listener.names")}
    listeners = []
    for name, endpoint in _endpoints("listeners", _bind_texts(configs)):
        if name not in protocols:
            raise ConfigError(
                f"No security protocol is defined for listener {name}: add it to listener.security.protocol.map."
            )
        if name not in controllers:
            listeners.append(Listener(name, endpoint.host, endpoint.port, protocols[name]))
    if not listeners:
        raise ConfigError("listeners has no listener for clients: add one that is not in controller.listener.names.")
    _check_distinct(listeners)
    return tuple(listeners)


def parse_advertised(configs: BrokerConfigs, listeners: tuple[Listener, ...]) -> Mapping[str, Endpoint]:
    """Return the advertised address of each listener that has one. Raise ConfigError."""
    names = {listener.name for listener in listeners}
    controllers = {name.upper() for name in configs.list("controller.listener.names")}
    advertised = {}
    for name, endpoint in _endpoints("advertised.listeners", _advertised_texts(configs)):
        if name in controllers:
            continue
        if name not in names:
            found = ",".join(one for one, _ in _endpoints("advertised.listeners", _advertised_texts(configs)))
            raise ConfigError(
                "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
                f"Found {found}. The valid options based on the current configuration are {','.join(sorted(names))}"
            )
        if endpoint.host == "0.0.0.0":
            raise ConfigError(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
            )
        if endpoint.host in ("", "::"):
            raise ConfigError(
                f"Invalid advertised address {endpoint} of listener {name}: clients cannot connect to it."
            )
        advertised[name] = endpoint
    return advertised


def inter_broker_listener(configs: BrokerConfigs, listeners: Sequence[Listener]) -> str:
    """Return the name of the listener for inter-broker requests. Raise ConfigError."""
    name = configs.optional_str(INTER_BROKER_LISTENER)
    if name is not None:
        name = name.upper()
        if all(listener.name != name for listener in listeners):
            raise ConfigError(f"{INTER_BROKER_LISTENER} must be one of listeners, not '{name}'.")
        return name
    protocol = configs.str("security.inter.broker.protocol")
    for listener in listeners:
        if listener.protocol.value == protocol:
            return listener.name
    raise ConfigError(f"No listener uses {protocol}, the protocol between brokers (security.inter.broker.protocol).")


def between_listeners(
    configs: BrokerConfigs, listeners: Sequence[Listener], advertised: Mapping[str, Endpoint] | None
) -> Iterator[str]:
    """Yield problems of the keys that name one of the listeners, in Kafka's words.

    `advertised` is None if advertised.listeners cannot be parsed.
    """
    valid_names = [one.name for one in listeners]
    if advertised is not None and configs.is_set("advertised.listeners"):
        valid_names = [name for name in valid_names if name in advertised]
    valid_options = (
        "defined in advertised.listeners. "
        f"The valid options based on currently configured listeners are {','.join(valid_names)}"
    )
    inter_broker_name = _own_name(configs)
    if inter_broker_name == "":
        yield "The provided listener name is null or empty string"
    elif inter_broker_name and configs.is_set(SECURITY_PROTOCOL):
        yield f"Only one of {INTER_BROKER_LISTENER} and {SECURITY_PROTOCOL} should be set."
    elif inter_broker_name and inter_broker_name not in _protocols(configs.str("listener.security.protocol.map")):
        where = f"defined in {INTER_BROKER_LISTENER} not found in listener.security.protocol.map."
        yield f"Listener with name {inter_broker_name} {where}"
    elif _needs_inter_broker(configs) and (inter_broker_name or _first_of(configs, listeners)) not in valid_names:
        yield f"{INTER_BROKER_LISTENER} must be a listener name {valid_options}"
    yield from _control_plane(configs, inter_broker_name or _first_of(configs, listeners), valid_names, valid_options)
    known = {one.name for one in listeners}.union(name.upper() for name in configs.list("controller.listener.names"))
    for name in configs.list("early.start.listeners"):
        if name.upper() not in known:
            yield (
                f"early.start.listeners contains listener {name}, but this is not contained in listeners or "
                "controller.listener.names"
            )


def _needs_inter_broker(configs: BrokerConfigs) -> bool:
    """Return whether brokers may connect to each other; a single broker needs no listener for that."""
    names = (INTER_BROKER_LISTENER, SECURITY_PROTOCOL)
    return bool(configs.optional_str("zookeeper.connect")) or any(map(configs.is_set, names))


def _own_name(configs: BrokerConfigs) -> str | None:
    name = configs.optional_str(INTER_BROKER_LISTENER)
    return None if name is None else name.upper()


def _first_of(configs: BrokerConfigs, listeners: Sequence[Listener]) -> str | None:
    protocol = configs.str(SECURITY_PROTOCOL)
    return next((one.name for one in listeners if one.protocol.value == protocol), None)


def _control_plane(
    configs: BrokerConfigs, own: str | None, valid_names: Sequence[str], valid_options: str
) -> Iterator[str]:
    key = "control.plane.listener.name"
    name = (configs.optional_str(key) or "").upper()
    if not name:
        return
    if name not in _protocols(configs.str("listener.security.protocol.map")):
        yield f"Listener with {name} defined in {key} not found in listener.security.protocol.map."
    elif name not in valid_names:
        yield f"{key} must be a listener name {valid_options}"
    elif name == own:
        yield (
            f"{key}, when defined, should have a different value from the inter broker listener name. "
            f"Currently they both have the value ListenerName({name})"
        )


def parse_address(key: str, text: str) -> Endpoint:
    """Parse host:port for a port that is not a listener. Raise ConfigError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"Invalid value {text!r} for configuration {key}: use host:port.")
    return Endpoint(match["host"].strip("[]"), int(match["port"]))


def _bind_texts(configs: BrokerConfigs) -> tuple[str, ...]:
    # host.name and port predate Kafka 0.9 and apply if listeners is not set.
    if not configs.is_set("listeners") and (configs.is_set("host.name") or configs.is_set("port")):
        return (f"PLAINTEXT://{_bracketed(configs.str('host.name'))}:{configs.int('port')}",)
    return configs.list("listeners")


def _advertised_texts(configs: BrokerConfigs) -> tuple[str, ...]:
    host, port = configs.optional_str("advertised.host.name"), configs.optional_int("advertised.port")
    if not configs.is_set("advertised.listeners") and host:
        return (f"PLAINTEXT://{_bracketed(host)}:{configs.int('port') if port is None else port}",)
    return configs.list("advertised.listeners")


def _endpoints(key: str, texts: tuple[str, ...]) -> list[tuple[str, Endpoint]]:
    found: dict[str, Endpoint] = {}
    for text in texts:
        match = _ENDPOINT.fullmatch(text)
        if match is None:
            raise ConfigError(f"Invalid value {text!r} for configuration {key}: use NAME://host:port.")
        name, port = match["name"].upper(), int(match["port"])
        if not 0 <= port <= 65535:
            raise ConfigError(f"Invalid value {text!r} for configuration {key}: a port must be between 0 and 65535.")
        if name in found:
            raise ConfigError(f"Each listener must have a different name, but {key} contains {name} twice.")
        found[name] = Endpoint(match["host"].strip("[]"), port)
    return list(found.items())


def _protocols(text: str) -> dict[str, SecurityProtocol]:
    """Parse listener.security.protocol.map: NAME:PROTOCOL,..."""
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = pair.partition(":")
        if not separator or protocol.strip().upper() not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(
                f"Invalid entry {pair!r} in listener.security.protocol.map: use NAME:PROTOCOL, with one of {known}."
            )
        protocols[name.strip().upper()] = SecurityProtocol[protocol.strip().upper()]
    return protocols


_EVERY_INTERFACE = ("", "0.0.0.0", "::")


def _check_distinct(listeners: list[Listener]) -> None:
    for i, one in enumerate(listeners):
        for other in listeners[:i]:
            same_host = one.host == other.host or one.host in _EVERY_INTERFACE or other.host in _EVERY_INTERFACE
            if same_host and one.port == other.port != 0:
                raise ConfigError(
                    f"Each listener must have a different port, but {other.name} and {one.name} have port {one.port}."
                )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
