"""Options shared by several commands, and the cluster client that they configure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from odradek.app.config.properties import read_properties
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.app.terminal.time_arguments import duration_ms
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.core.configs.definition import ConfigError

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"

BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT[,...]", help="Any brokers of the cluster."),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Properties file with client configurations, such as security.protocol.",
    ),
]
Texts = TypeVar("Texts", str, list[str], list[str] | None, str | None)
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of a table.")]
OnlyPartitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition; repeat for more."),
]
TOPIC_PARTITIONS = typer.Option(
    "--topic", metavar="TOPIC[:N,...]", help="All partitions of a topic, or the listed ones; repeat for more."
)


def not_empty(given: Texts) -> Texts:
    """Raise BadParameter for an empty text, alone or in a list.

    This is a typer callback, used because no group has an empty name.
    """
    if "" in ([given] if isinstance(given, str) else given or ()):
        raise typer.BadParameter("it must not be empty")
    return given


@contextmanager
def connected(bootstrap_server: str, command_config: Path | None = None, **settings: int) -> Iterator[Cluster]:
    """Yield a connected cluster, or fail at once if no broker answers. `settings` are ClientConfig fields."""
    config = client_config(bootstrap_server, command_config)
    config = replace(config, **settings)  # type: ignore[arg-type]  # All ints.
    with Cluster(config) as cluster:
        yield cluster.connect()


def client_config(bootstrap_server: str, command_config: Path | None) -> ClientConfig:
    """Return the client's configuration. Raise CommandFailed for the file, ConfigurationError for a value."""
    texts = client_texts(command_config)
    return ClientConfig.from_options({"client.id": "odradek-cli"} | texts | {"bootstrap.servers": bootstrap_server}, "")


def client_texts(command_config: Path | None) -> dict[str, str]:
    """Return the file's settings without bootstrap.servers, an option of the command. Raise CommandFailed."""
    if command_config is None:
        return {}
    try:
        texts = read_properties(command_config)
    except ConfigError as error:
        raise CommandFailed(str(error).rstrip("."), USAGE_ERROR) from None
    texts.pop("bootstrap.servers", None)
    return texts


def choose(option: str, text: str, among: Sequence[str]) -> str:
    """Return the matching value, ignoring case and - or _ between words."""
    for each in among:
        if each.lower() == text.strip().lower().replace("_", "").replace("-", ""):
            return each
    raise CommandFailed(f"invalid {option} {text!r}: use one of {', '.join(among)}", USAGE_ERROR)


def duration(option: str, text: str) -> int:
    """Return the milliseconds of 90s, 10m, 2h or 1d."""
    try:
        return duration_ms(text)
    except ValueError:
        raise CommandFailed(f"invalid {option} {text!r}: use 90s, 10m, 2h or 1d", USAGE_ERROR) from None


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse the `name=value` texts of a repeated option."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandFailed(f"invalid {option} {text!r}: use {option} name=value", USAGE_ERROR)
        found[name.strip()] = value
    return found
