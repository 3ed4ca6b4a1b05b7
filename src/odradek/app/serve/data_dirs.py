"""Opening of the log directories (log.dirs) at startup; a failed disk does not affect the others.

As in Apache Kafka, startup fails if a directory is locked by another broker or belongs to one.

An unmounted disk looks like a new, empty directory. Each of several directories therefore contains a list of all of
them. A directory that is in such a list and empty counts as failed: its partitions would otherwise be recreated without
records.
"""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from odradek.app.terminal.output import size_text
from odradek.core.partition.storage import STRAYS_NAMED_MAX, Storage
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import Each
from odradek.log.files.disk import Disk, DiskFailed, read_file, replace_file
from odradek.log.files.log_file_names import LOG_DIRS
from odradek.log.files.volume import Volume, volume_of

LIST_BYTES_MAX = 1 << 20
OPENED_AT_ONCE = 16
ITEMS_PER_CHECK = 8
_LEFT_BY_FILE_SYSTEMS = ("lost+found",)

log = logging.getLogger(__name__)

T = TypeVar("T")


def open_storage(disk: Disk, paths: Sequence[Path], open_one: Callable[[str, Each], LogDirectory]) -> Storage:
    """Open all directories that can be opened.

    Raise NoDirectory, DiskFailed if the only directory cannot be opened, or the errors of open_log_directory.
    """
    with ThreadPoolExecutor(OPENED_AT_ONCE, thread_name_prefix="odradek-opening") as threads:
        storage = _open_all(disk, paths, lambda path: open_one(path, partial(run_with_helpers, threads)))
        unsynced = [(directory, name) for directory in storage for name in directory.unsynced()]
        for _ in threads.map(lambda one: one[0].flush(one[1]), unsynced):
            pass
    return storage


def run_with_helpers(threads: Executor, do: Callable[[T], object], items: Iterable[T]) -> Iterable[None]:
    """Do each work in this thread, with help from others while the disk takes most of the time.

    A slow disk handles many requests at once. With cached data, threads that compete for the interpreter take two or
    three times as long as a single thread. The first error is raised after all other work is done.
    """
    remaining = deque(items)

    def do_next() -> bool:
        try:
            item = remaining.popleft()
        except IndexError:
            return False
        do(item)
        return True

    def help_out() -> None:
        while do_next():
            pass

    helpers: list[Future[None]] = []
    done, started = 0, _clocks()
    while do_next():
        done += 1
        if done % ITEMS_PER_CHECK == 0:
            now = _clocks()
            if now[1] - started[1] < (now[0] - started[0]) / 2:
                count = min(len(helpers) + 1, OPENED_AT_ONCE - len(helpers))
                helpers += [threads.submit(help_out) for _ in range(count)]
            started = now
    for helper in helpers:
        helper.result()
    return ()


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


def _open_all(disk: Disk, paths: Sequence[Path], open_one: Callable[[str], LogDirectory]) -> Storage:
    absolute = [str(path.absolute()) for path in paths]
    if len(absolute) == 1:
        storage = Storage([open_one(str(paths[0]))])
        if _read_list(disk, absolute[0]):
            _write_lists(disk, storage, set())
        return storage
    known = _previously_used(disk, absolute)
    directories = [
        _open(disk, str(path), open_one, was_used=name in known) for path, name in zip(paths, absolute, strict=True)
    ]
    storage = Storage(directories)
    storage.check_any_online()
    _write_lists(disk, storage, known.intersection(absolute))
    return storage


def _open(disk: Disk, path: str, open_one: Callable[[str], LogDirectory], *, was_used: bool) -> LogDirectory:
    try:
        if was_used and _is_empty(disk, path):
            why = (
                "it contained logs and is now empty: mount its disk, or, if the logs are lost, start once without it "
                "in log.dirs"
            )
            return LogDirectory.broken(disk, path, why)
        return open_one(path)
    except DiskFailed as failed:
        return LogDirectory.broken(disk, path, str(failed))


def _is_empty(disk: Disk, path: str) -> bool:
    try:
        return all(entry.name in _LEFT_BY_FILE_SYSTEMS for entry in disk.entries(path))
    except DiskFailed as failed:
        if failed.errno == errno.ENOENT:
            return True
        raise


def _previously_used(disk: Disk, paths: Sequence[str]) -> set[str]:
    """Return the directories that were used together with one of these."""
    found: set[str] = set()
    for path in paths:
        found.update(_read_list(disk, path))
    return found


def _read_list(disk: Disk, path: str) -> list[str]:
    try:
        data = read_file(disk, f"{path}/{LOG_DIRS}", LIST_BYTES_MAX)
        return data.decode().splitlines() if data else []
    except (DiskFailed, UnicodeDecodeError):
        return []  # Another directory has the list, too.


def _write_lists(disk: Disk, storage: Storage, known: set[str]) -> None:
    """Write the list of used directories into each of them, without those that failed and were never used."""
    used = sorted(known | {str(Path(one.path).absolute()) for one in storage.online})
    for directory in storage.online:
        if _read_list(disk, directory.path) != used:
            try:
                replace_file(disk, f"{directory.path}/{LOG_DIRS}", "".join(f"{path}\n" for path in used).encode())
                disk.sync_directory(directory.path)
            except DiskFailed as failed:
                directory.problems.append(str(failed))


def report(storage: Storage) -> None:
    """Log what startup found and repaired, and which directories it could not open."""
    for directory in storage.online:
        report_room(directory.path, volume_of(directory.path))
    for directory in storage:
        for problem in directory.problems:
            log.warning("%s: %s", directory.path, problem)
        for name, reason in directory.offline.items():
            log.error("%s is offline: %s", name, reason)
    failed = [directory for directory in storage if directory.failure is not None]
    for directory in failed:
        log.error("data directory %s is offline, the others are served: %s", directory.path, directory.failure)


def report_room(path: str, volume: Volume) -> None:
    """Log that a directory's volume is full or nearly full; it is served nonetheless."""
    if volume.is_short:
        state = "is full" if volume.is_full else "is almost full"
        room = f"{size_text(volume.usable_bytes)} of {size_text(volume.total_bytes)} free"
        advice = "delete topics, lower retention.ms or retention.bytes, or enlarge the disk"
        text = "the disk of %s %s (%s): writes that do not fit are rejected; %s"
        log.warning(text, path, state, room, advice)


def report_missed(storage: Storage) -> None:
    """Log the partitions without logs, after the controller has sent the list of replicas."""
    if storage.missed:
        names = ", ".join(map(str, storage.missed[:STRAYS_NAMED_MAX]))
        text = "%d partitions are offline because no online data directory contains them: %s%s"
        log.error(text, len(storage.missed), names, "..." if storage.missed[STRAYS_NAMED_MAX:] else "")
