"""odradek serve: builds the broker from its settings, runs it until it is told to stop, and stops it cleanly.

Everything is put together here, by hand, in the order in which it can fail: the addresses are bound before the data is
opened, and clients are let in last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from odradek.app.building import Running, start
from odradek.app.config import Settings, load
from odradek.coordination.tree import Unavailable
from odradek.log.disk import DirectoryInUse, DiskFailed
from odradek.log.meta_properties import WrongDirectory
from odradek.net.listener import CannotListen

log = logging.getLogger(__name__)

STOPPED, FAILED = 0, 1


def run(config_path: Path | None, overrides: Sequence[str], insecure: bool) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit status.  Raises ConfigError before anything was touched."""
    settings = load(config_path, overrides, insecure=insecure)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    if settings.without_effect:
        log.warning("known to Kafka, but without effect here yet: %s", ", ".join(settings.without_effect))
    try:
        return uvloop.run(_serve(settings))
    except (CannotListen, DirectoryInUse, WrongDirectory, Unavailable) as error:
        sys.stderr.write(f"odradek serve: {error}\n")
    except DiskFailed as failed:
        sys.stderr.write(
            f"odradek serve: {failed.filename} can't be used: {(failed.strerror or str(failed)).lower()}\n"
        )
    return FAILED


async def _serve(settings: Settings) -> int:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop.set)
    running = await start(settings, loop)
    _say_ready(running)
    await told_to_stop.wait()
    await running.stop()
    return STOPPED


def _say_ready(running: Running) -> None:
    """One line for each listener, for whoever waits for it; nothing else goes to standard output."""
    for listener in running.listeners:
        host = f"[{listener.host}]" if ":" in listener.host else listener.host or "0.0.0.0"
        os.write(1, f"ready {listener.name}://{host}:{listener.port}\n".encode())
