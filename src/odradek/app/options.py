"""Options that several commands share, and the cluster they lead to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from odradek.app.failure import MISUNDERSTOOD, CommandFailed
from odradek.client.cluster import Cluster
from odradek.client.config import ClientConfig

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"

BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT[,...]", help="Any brokers of the cluster."),
]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of a table.")]


@contextmanager
def connected(bootstrap_server: str, **settings: int) -> Iterator[Cluster]:
    """A cluster that answered; fails at once if none does.  `settings` are fields of ClientConfig."""
    config = replace(ClientConfig(bootstrap_server, client_id="odradek-cli"), **settings)  # type: ignore[arg-type]  # ints
    with Cluster(config) as cluster:
        yield cluster.connect()


def chosen(option: str, text: str, among: Sequence[str]) -> str:
    """One of these, as it is written there; a person may write it in any case, and with - or _ between words."""
    for each in among:
        if each.lower() == text.strip().lower().replace("_", "").replace("-", ""):
            return each
    raise CommandFailed(f"{option} {text!r} is not one of {', '.join(among)}", MISUNDERSTOOD)


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`name=value` texts of a repeated option."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandFailed(f"{option} {text!r} is not understood: write {option} name=value", MISUNDERSTOOD)
        found[name.strip()] = value
    return found
