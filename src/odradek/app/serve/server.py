"""Process of `odradek serve`: builds a broker, runs it until a signal, and shuts it down cleanly.

The parts are assembled by hand, in the order in which they can fail: addresses are bound before the data is opened, and
clients are accepted last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from odradek.app.config.server_config import Settings, load
from odradek.app.logging import log_format as logs
from odradek.app.serve.broker_startup import RunningBroker, start
from odradek.app.serve.garbage import YOUNG_OBJECTS, CollectionPause, GarbageCollector
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.tree import TreeFailed
from odradek.core.partition.storage import NoDirectory
from odradek.log.files.disk import DirectoryInUse, DiskFailed
from odradek.log.files.meta_properties import WrongDirectory
from odradek.net.clients.listen_failure import CannotListen
from odradek.net.loop.descriptors import grow_table
from odradek.net.native import processors
from odradek.net.native.busy_poll import BusyPoll

log = logging.getLogger(__name__)

STOPPED, FAILED = 0, 1
# Longest time per turn for which a busy Python thread keeps the interpreter from the loop (default 5 ms).
SWITCH_SECONDS = 0.001
# Gigabytes of unsynced data may have to be written; a disk that takes longer than this hangs.
STOP_SECONDS_MAX = 300


def run(
    config_path: Path | None,
    overrides: Sequence[str],
    insecure: bool,
    log_format: str = logs.TEXT,
    log_levels: Sequence[str] = (),
    *,
    is_member: bool = False,
) -> int:
    """Serve until SIGTERM or Ctrl-C. Return the exit status. Raise ConfigError before touching anything."""
    settings = load(config_path, overrides, insecure=insecure)
    settings = settings._replace(is_member=is_member or settings.is_member)
    logs.install(log_format, log_levels)
    if settings.without_effect:
        log.warning("Kafka configuration keys that have no effect in Odradek: %s", ", ".join(settings.without_effect))
    if settings.unknown:
        log.warning("unknown configuration keys, which are ignored: %s", ", ".join(settings.unknown))
    _allow_open_files()
    try:
        return uvloop.run(_serve(settings))
    except (CannotListen, DirectoryInUse, NoDirectory, WrongDirectory, TreeFailed, BadZnodeError) as error:
        sentence = str(error)
    except DiskFailed as failed:
        sentence = f"cannot use {failed.filename}: {(failed.strerror or str(failed)).lower()}"
    if log_format == logs.JSON:
        log.critical("%s", sentence)
    else:
        sys.stderr.write(f"odradek serve: {sentence}\n")
    return FAILED


def _allow_open_files() -> None:
    """Raise the limit of open files to the maximum: each partition and each connection needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    grow_table()


async def _serve(settings: Settings) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_exception)
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    sys.setswitchinterval(SWITCH_SECONDS)
    starting, stopping = loop.create_task(start(settings, loop)), loop.create_task(stop_requested.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        await _cancel_start(starting)
        return STOPPED
    running = starting.result()
    if len(processors.usable()) > 1:  # On a single CPU, polling would starve the client.
        running.shell.busy_poll = BusyPoll(loop)
    running.shell.long_turns.around = CollectionPause()
    running.shell.around_entries = CollectionPause(YOUNG_OBJECTS)
    GarbageCollector(loop, running.shell.traffic).start_collecting()
    _print_ready(running)
    await stopping
    exit_timer = _start_exit_timer()
    await running.stop()
    exit_timer.cancel()
    return STOPPED


async def _cancel_start(starting: asyncio.Task[RunningBroker]) -> None:
    exit_timer = _start_exit_timer()
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    exit_timer.cancel()


def _start_exit_timer() -> threading.Timer:
    """Start a timer that kills the process if shutdown hangs, which only a disk can cause.

    The next start then recovers the logs.
    """

    def exit_process() -> None:
        log.critical("the disk did not complete its syncs within %d s: shutting down without them", STOP_SECONDS_MAX)
        os._exit(FAILED)

    exit_timer = threading.Timer(STOP_SECONDS_MAX, exit_process)
    exit_timer.daemon = True
    exit_timer.start()
    return exit_timer


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an error that escaped a callback: close only the failed connection, or end the process.

    After any other error, the extent of the damage is unknown, and serving could lose data. The process then ends as if
    killed, so that the next start recovers the logs. As in Kafka, it also ends when the last log directory fails.
    """
    error = context.get("exception")
    if isinstance(error, NoDirectory):
        log.critical("%s Shutting down the broker.", error)
        os._exit(FAILED)
    is_fatal = isinstance(error, AssertionError) or (error is not None and "transport" not in context)
    peer = context["transport"].get_extra_info("peername") if "transport" in context else None
    log.log(
        logging.CRITICAL if is_fatal else logging.ERROR,
        "%s",
        context.get("message"),
        exc_info=error,
        extra={"connection": f"{peer[0]}:{peer[1]}"} if peer else None,
    )
    if is_fatal:
        os._exit(FAILED)


def _print_ready(running: RunningBroker) -> None:
    """Print one line for each listener, as a readiness signal. Standard output carries nothing else."""
    for listener in running.listeners:
        host = f"[{listener.host}]" if ":" in listener.host else listener.host or "0.0.0.0"
        os.write(1, f"ready {listener.name}://{host}:{listener.port}\n".encode())
