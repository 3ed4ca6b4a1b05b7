"""Whether a data directory may lack what was written to it: the machine has started anew since, or the disk is another.

A process that dies takes nothing with it: what it wrote is the kernel's.  So each start notes in which boot of the
machine it is, and the next one compares.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from odradek.log.directory.directory import LogDirectory
from odradek.log.files.disk import DiskFailed, read_file, replace_file
from odradek.log.files.log_file_names import BOOT

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # Linux's; elsewhere nobody knows.
_BYTES_MAX = 100


def may_have_lost(directories: Iterable[LogDirectory], boot_id: str | None) -> bool:
    """Returns True if one of them was not left cleanly, and not in this boot; notes this one in each.

    `boot_id` None is any other boot.  A directory that is new has had everything or nothing: nobody can tell.
    """
    lost = False
    for directory in directories:
        if directory.failure is None:
            lost |= not directory.clean_shutdown and not _is_of(directory, boot_id)
            _note(directory, boot_id)
    return lost


def this_boot() -> str | None:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None


def _is_of(directory: LogDirectory, boot_id: str | None) -> bool:
    try:
        noted = read_file(directory.disk, _path(directory), _BYTES_MAX)
    except DiskFailed:
        return False
    return boot_id is not None and noted == boot_id.encode()


def _note(directory: LogDirectory, boot_id: str | None) -> None:
    """Writes it down; where that fails the next start is one after a loss."""
    try:
        replace_file(directory.disk, _path(directory), (boot_id or "").encode(), durable=False)
    except DiskFailed as failed:
        directory.problems.append(f"the boot of the machine can't be noted: {failed}")


def _path(directory: LogDirectory) -> str:
    return f"{directory.path}/{BOOT}"
