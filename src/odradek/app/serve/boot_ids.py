"""Detection of possible data loss in a log directory, after a reboot or on another disk.

A process that dies loses no writes, because the kernel already has them. Each start therefore records the boot id of
the machine, and the next start compares it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from odradek.log.directory.directory import LogDirectory
from odradek.log.files.disk import DiskFailed, read_file, replace_file
from odradek.log.files.log_file_names import BOOT

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # Linux only; unknown elsewhere.
_BYTES_MAX = 100


def may_have_lost(directories: Iterable[LogDirectory], boot_id: str | None) -> bool:
    """Return whether a directory was left uncleanly in another boot, and record this boot in each.

    `boot_id` None means another boot. A new directory may have lost everything or nothing; the difference is not
    detectable.
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
    """Record the boot. If that fails, the next start assumes a loss."""
    try:
        replace_file(directory.disk, _path(directory), (boot_id or "").encode(), durable=False)
    except DiskFailed as failed:
        directory.problems.append(f"cannot store the boot id of the machine: {failed}")


def _path(directory: LogDirectory) -> str:
    return f"{directory.path}/{BOOT}"
