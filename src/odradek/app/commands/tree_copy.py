"""odradek tree: operations on the metadata of a whole cluster, while no broker runs."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from odradek.app.config.properties import read_properties
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.app.terminal.output import plural, size_text
from odradek.base.extras import absent, not_installed
from odradek.coordination.copying import NotCopied, copy_metadata
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.coordination.tree import Tree, TreeFailed
from odradek.core.configs.definition import ConfigError

app = typer.Typer(help="Copy cluster metadata.", no_args_is_help=True)

CONNECT_MS_MAX = 10_000
# Prefixes of a broker's ZooKeeper configuration.
ZOOKEEPER_PREFIXES = ("zookeeper.", "java.security.auth.login.config", "odradek.zookeeper.")
_ENSEMBLE = re.compile(r"[^/:,\s]+:\d+(,[^/:,\s]+:\d+)*(/\S*)?")


@app.callback()
def tree() -> None:
    """Copy cluster metadata."""


@app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Location of the metadata.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="Location without a cluster.", show_default=False)],
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A broker's server.properties, for its zookeeper.* keys."),
    ] = None,
) -> None:
    """Copy a cluster's metadata from a folder to ZooKeeper, or back.

    A location is a folder (metadata.log.dir, or a broker's first data directory)
    or an ensemble as in zookeeper.connect: host:port,host:port/chroot.  Stop the
    brokers of both locations first.  The source is not changed.  If an ensemble
    requires TLS or authentication, or needs ACLs, --config names the file with
    the zookeeper.* keys of its brokers.

    Example: odradek tree copy odradek-data 127.0.0.1:2181/kafka
    """
    try:
        texts = _texts(config)
        with (
            closing(_open(source, texts, is_target=False)) as from_tree,
            closing(_open(target, texts, is_target=True)) as to_tree,
        ):
            copied = copy_metadata(from_tree, to_tree, source_name=source, target_name=target)
    except (NotCopied, TreeFailed) as failed:
        raise CommandFailed(str(failed).rstrip(".")) from None
    typer.echo(
        f"copied {plural(copied.topics, 'topic')}, {plural(copied.nodes, 'znode')} in total, "
        f"{size_text(copied.size)}, from {source} to {target}"
    )


def _texts(config: Path | None) -> Mapping[str, str]:
    """Read the ZooKeeper configuration, except the address, which is an argument. Raise CommandFailed."""
    try:
        texts = {} if config is None else read_properties(config)
    except ConfigError as error:
        raise CommandFailed(str(error).rstrip("."), USAGE_ERROR) from None
    return {name: text for name, text in texts.items() if name.startswith(ZOOKEEPER_PREFIXES)}


def _open(place: str, texts: Mapping[str, str], *, is_target: bool) -> Tree:
    """Open the tree at a place, and create a missing target only. Raise CommandFailed, TreeFailed."""
    if not place:
        raise CommandFailed("empty location: use a broker's metadata.log.dir, or HOST:PORT/CHROOT", USAGE_ERROR)
    if _ENSEMBLE.fullmatch(place):
        return _open_ensemble(place.rstrip("/"), texts, is_target=is_target)
    folder = Path(place)
    if is_target:
        folder.mkdir(parents=True, exist_ok=True)
    elif not (folder / METADATA_FILE).is_file():
        raise CommandFailed(f"{place} has no {METADATA_FILE}: use a broker's metadata.log.dir, or HOST:PORT/CHROOT")
    return SqliteTree(folder / METADATA_FILE)


def _open_ensemble(connect: str, texts: Mapping[str, str], *, is_target: bool) -> Tree:
    if missing := absent("kazoo"):
        raise CommandFailed(not_installed(missing, "zookeeper"))
    from odradek.app.config.zookeeper_settings import CONNECT, CONNECTION_MS, zookeeper_settings
    from odradek.core.configs.broker_configs import BrokerConfigs

    logging.getLogger("kazoo").addHandler(logging.NullHandler())  # Otherwise Python prints its log of each attempt.
    try:
        configs = BrokerConfigs.parse({CONNECTION_MS: str(CONNECT_MS_MAX)} | dict(texts) | {CONNECT: connect})
        settings = zookeeper_settings(configs)
    except ConfigError as error:
        raise CommandFailed(str(error).rstrip("."), USAGE_ERROR) from None
    tree = settings.open(makes_chroot=is_target)
    if tree.exists("/") is None:
        tree.close()
        hosts, slash, chroot = connect.partition("/")
        raise CommandFailed(f"ZooKeeper at {hosts} has no chroot {slash}{chroot}")
    return tree
