"""odradek tree: the metadata of a cluster as a whole, while no broker runs."""

from __future__ import annotations

import logging
import re
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from odradek.app.failure import MISUNDERSTOOD, CommandFailed
from odradek.app.output import plural, size_text
from odradek.base.extras import absent, not_installed
from odradek.coordination.copying import NotCopied, copy_metadata
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.coordination.tree import Tree, TreeFailed

app = typer.Typer(help="Look after the cluster's metadata as a whole.", no_args_is_help=True)

CONNECT_MS_MAX = 10_000
_ENSEMBLE = re.compile(r"[^/:,\s]+:\d+(,[^/:,\s]+:\d+)*(/\S*)?")


@app.callback()
def tree() -> None:
    """Look after the cluster's metadata as a whole."""


@app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Where the metadata is.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where no cluster is yet.", show_default=False)],
) -> None:
    """Copy a cluster's metadata from a broker's folder to ZooKeeper, or back.

    A place is a folder (metadata.log.dir, or a broker's first data directory)
    or an ensemble as in zookeeper.connect: host:port,host:port/chroot.  No
    broker may run on either.  What is copied stays where it was.

    Example: odradek tree copy odradek-data 127.0.0.1:2181/kafka
    """
    try:
        with (
            closing(_opened(source, is_target=False)) as from_tree,
            closing(_opened(target, is_target=True)) as to_tree,
        ):
            copied = copy_metadata(from_tree, to_tree, source_name=source, target_name=target)
    except (NotCopied, TreeFailed) as failed:
        raise CommandFailed(str(failed).rstrip(".")) from None
    typer.echo(
        f"copied {plural(copied.topics, 'topic')}, {plural(copied.nodes, 'znode')} in all with "
        f"{size_text(copied.size)}, from {source} to {target}"
    )


def _opened(place: str, *, is_target: bool) -> Tree:
    """Opens the tree at a place; only of a target is anything made.  Raises CommandFailed, TreeFailed."""
    if not place:
        raise CommandFailed("a place is empty: give a broker's metadata.log.dir, or HOST:PORT/CHROOT", MISUNDERSTOOD)
    if _ENSEMBLE.fullmatch(place):
        return _opened_ensemble(place.rstrip("/"), is_target=is_target)
    folder = Path(place)
    if is_target:
        folder.mkdir(parents=True, exist_ok=True)
    elif not (folder / METADATA_FILE).is_file():
        raise CommandFailed(f"{place} has no {METADATA_FILE}: give a broker's metadata.log.dir, or HOST:PORT/CHROOT")
    return SqliteTree(folder / METADATA_FILE)


def _opened_ensemble(connect: str, *, is_target: bool) -> Tree:
    if missing := absent("kazoo"):
        raise CommandFailed(not_installed(missing, "zookeeper"))
    from odradek.coordination.zookeeper import open_zookeeper

    logging.getLogger("kazoo").addHandler(logging.NullHandler())  # Or Python prints what it says of each try.
    tree = open_zookeeper(connect, connection_timeout_ms=CONNECT_MS_MAX, makes_chroot=is_target)
    if tree.exists("/") is None:
        tree.close()
        hosts, slash, chroot = connect.partition("/")
        raise CommandFailed(f"{hosts} has no {slash}{chroot}")
    return tree
