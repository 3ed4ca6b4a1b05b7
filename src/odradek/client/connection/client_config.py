"""The configuration of a client as one frozen, picklable value, in Kafka's terms.

The command line fills it directly. Spark uses from_options, whose names are Kafka's client configurations with the
prefix `kafka.`. Unsupported security options are rejected. Other options of Kafka's clients without meaning here (group
timeouts, metrics reporters, ...) are ignored with a log message, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from odradek.base.nearest import did_you_mean
from odradek.base.units import INT32_MAX, KIB, MIB, MINUTE_MS, SECOND_MS
from odradek.client.connection.client_errors import ConfigurationError
from odradek.tls import tls_config
from odradek.tls.tls_config import Names, TlsConfig
from odradek.tls.tls_errors import TlsConfigError

Address = tuple[str, int]

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Settings of a client; times are milliseconds, sizes are bytes.

    The defaults are those of Kafka's Java clients unless a comment gives a reason.
    """

    bootstrap_servers: str
    client_id: str = "odradek"
    connect_timeout_ms: int = 10 * SECOND_MS
    request_timeout_ms: int = 30 * SECOND_MS
    api_timeout_ms: int = 1 * MINUTE_MS
    delivery_timeout_ms: int = 2 * MINUTE_MS
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1 * SECOND_MS
    metadata_max_age_ms: int = 5 * MINUTE_MS
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * MIB
    max_partition_fetch_bytes: int = 1 * MIB
    isolation_level: int = READ_UNCOMMITTED
    # Kafka's producer sends batches of 16 KiB. The loops here cost per batch, and 512 KiB is below max.message.bytes.
    batch_bytes: int = 512 * KIB
    # A larger answer is treated as invalid. One fetch may exceed fetch_max_bytes by one batch.
    response_bytes_max: int = 1024 * MIB - 1
    tls: TlsConfig | None = None  # None means plain text. Stores are read when a connection is opened.

    def __post_init__(self) -> None:
        # An address that can't be parsed is the caller's error, which is raised here.
        addresses(self.bootstrap_servers)

    @property
    def addresses(self) -> tuple[Address, ...]:
        return addresses(self.bootstrap_servers)

    @classmethod
    def from_options(cls, options: Mapping[str, str], prefix: str = "kafka.") -> ClientConfig:
        """Parse Kafka's client configurations as text, for example {"kafka.bootstrap.servers": "a:9092"}.

        Names are case-insensitive. Options without the prefix are ignored. Raise ConfigurationError with the option's
        name.
        """
        values: dict[str, str | int | TlsConfig | None] = {}
        given = {name.lower()[len(prefix) :]: text for name, text in options.items() if name.lower().startswith(prefix)}
        for name, text in given.items():
            if name in OPTIONS:
                field, parse = OPTIONS[name]
                values[field] = parse(prefix + name, text)
            elif not name.startswith(SECURITY):
                # Other Kafka keys are this similar to supported keys.
                suggestion = did_you_mean(name, OPTIONS, 0.85, prefix)
                _log.warning("ignored option %s: this client does not use it%s", prefix + name, suggestion)
        values["tls"] = tls_of(given, prefix)
        if not values.get("bootstrap_servers"):
            raise ConfigurationError(f"option {prefix}bootstrap.servers is missing: set it to host:port[,host:port]")
        return cls(**values)  # type: ignore[arg-type]  # OPTIONS maps every option to a parser of the field type.


def addresses(bootstrap_servers: str) -> tuple[Address, ...]:
    """Parse `host:port[,host:port...]`, with IPv6 hosts in brackets."""
    parts = [part.strip() for part in bootstrap_servers.split(",") if part.strip()]
    if not parts:
        raise ConfigurationError("no bootstrap servers: set host:port[,host:port]")
    return tuple(address(part) for part in parts)


def address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    host = host.rpartition("//")[2]  # Kafka's clients also accept PLAINTEXT://host:port.
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(f"invalid address {text!r}: use brackets for an IPv6 host, for example [::1]:9092")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigurationError(f"invalid address {text!r}: use host:port, for example 127.0.0.1:9092")
    return host, int(port)


def number(low: int, high: int = INT32_MAX) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ConfigurationError(f"option {name}={text!r} must be an integer") from None
        if not low <= value <= high:
            raise ConfigurationError(f"option {name}={value} must be between {low} and {high}")
        return value

    return parse


def text_value(name: str, text: str) -> str:
    return text.strip()


def isolation(name: str, text: str) -> int:
    levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    level = levels.get(text.strip().lower())
    if level is None:
        raise ConfigurationError(f"option {name}={text!r} must be read_committed or read_uncommitted")
    return level


SECURITY = ("security.protocol", "sasl.", "ssl.")


def tls_of(given: Mapping[str, str], prefix: str) -> TlsConfig | None:
    """Return the TLS configuration of the options, or None for plain text; reject unsupported options."""
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in ("PLAINTEXT", "SSL"):
        raise ConfigurationError(
            f"option {prefix}security.protocol={protocol} is not supported: this client supports PLAINTEXT and SSL"
        )
    for name in given:
        if name.startswith("sasl."):
            raise ConfigurationError(f"option {prefix}{name} is not supported: this client supports PLAINTEXT and SSL")
        if name in tls_config.WITHOUT_EFFECT:
            _log.warning("ignored option %s: this client does not use it", prefix + name)
        elif name.startswith("ssl.") and name not in tls_config.KEYS:
            suggestion = did_you_mean(name, tls_config.KEYS, prefix=prefix)
            raise ConfigurationError(f"unknown option {prefix}{name}{suggestion}")
        elif name.startswith("ssl.") and protocol != "SSL":
            raise ConfigurationError(f"option {prefix}{name} requires {prefix}security.protocol=SSL")
    if protocol == "PLAINTEXT":
        return None
    try:
        return TlsConfig.parse(given, Names(f"option {prefix}"))
    except TlsConfigError as error:
        raise ConfigurationError(str(error).rstrip(".")) from None


OPTIONS: dict[str, tuple[str, Callable[[str, str], str | int]]] = {
    "bootstrap.servers": ("bootstrap_servers", text_value),
    "client.id": ("client_id", text_value),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", number(1)),
    "request.timeout.ms": ("request_timeout_ms", number(1)),
    "default.api.timeout.ms": ("api_timeout_ms", number(1)),
    "delivery.timeout.ms": ("delivery_timeout_ms", number(1)),
    "retry.backoff.ms": ("retry_backoff_ms", number(0)),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", number(0)),
    "metadata.max.age.ms": ("metadata_max_age_ms", number(0)),
    "fetch.min.bytes": ("fetch_min_bytes", number(0)),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", number(0)),
    "fetch.max.bytes": ("fetch_max_bytes", number(1)),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", number(1)),
    "isolation.level": ("isolation_level", isolation),
    "batch.size": ("batch_bytes", number(1)),
}
