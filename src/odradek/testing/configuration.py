"""The broker configuration of a test, as texts of a server.properties file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from odradek.core.configs.definition import ConfigError
from odradek.testing.reserved_port import HOST

Value = str | int | float | bool | list[str] | tuple[str, ...] | Path
NO_CONFIGS: Mapping[str, Value] = MappingProxyType({})

_RESERVED = {
    "listeners": "port=",
    "port": "port=",
    "host.name": "port=",
    "log.dirs": "directory=",
    "log.dir": "directory=",
    "metadata.log.dir": "directory=",
}

# A test has few groups and waits for each, so the initial rebalance delay is 0 and internal topics are small.
_TEST_DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}


def texts(configs: Mapping[str, Value], keywords: Mapping[str, Value]) -> dict[str, str]:
    """Return the texts, with '_' in keywords replaced by '.'.

    Raise ConfigError for keys that the broker sets itself.
    """
    merged = {**configs, **{name.replace("_", "."): value for name, value in keywords.items()}}
    for name in merged:
        if name in _RESERVED:
            raise ConfigError(f"{name} is set by the test's broker; use {_RESERVED[name]} instead.")
    return {**_TEST_DEFAULTS, **{name: text(value) for name, value in merged.items()}}


def cluster_texts(configs: Mapping[str, Value], keywords: Mapping[str, Value]) -> dict[str, str]:
    """Return the texts for each broker of a cluster.

    Raise ConfigError for keys that the cluster sets itself.
    """
    found = texts(configs, keywords)
    for name in ("broker.id", "node.id"):
        if name in found:
            raise ConfigError(f"{name} is set by the test's cluster: its brokers are 1, 2, 3 and so on.")
    return found


def text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def places(directory: Path, port: int) -> dict[str, str]:
    return {"listeners": f"PLAINTEXT://{HOST}:{port}", "log.dirs": str(directory)}


def places_of_member(number: int, metadata: Path) -> dict[str, str]:
    return {"broker.id": str(number), "metadata.log.dir": str(metadata)}
