"""How tests start Java, of which most is to load classes: they are kept beside the jars, as they are once loaded.

That is Java's class data sharing.  An archive is made by the first who needs it, and read by all others; one that does
not fit the jars, or the Java, is passed over without a word.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

# Only the first, quick compiler, and no threads that collect garbage.  Nothing is said of an archive.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable")

_IN_THE_MAKING: set[Path] = set()


def options(folder: Path, name: str, run: Callable[[Sequence[str]], None]) -> list[str]:
    """Returns options of a Java that is soon up.

    `run` starts what is to be in the archive, with options of its own, and ends it in good order.
    """
    archive = folder / f"{name}-{_java()}.jsa"
    if archive in _IN_THE_MAKING:
        return [*OPTIONS]
    if not archive.exists():
        _make(archive, run)
    return [*OPTIONS, *([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else [])]


@cache
def _java() -> str:
    """Another Java has another name; its archives are of no use to this one."""
    program = shutil.which("java")
    assert program is not None
    return f"{Path(program).resolve().stat().st_mtime_ns:x}"


def _make(archive: Path, run: Callable[[Sequence[str]], None]) -> None:
    partial = archive.with_suffix(".partial")
    _IN_THE_MAKING.add(archive)
    try:
        with archive.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                run([f"-XX:ArchiveClassesAtExit={partial}"])
                if partial.exists():  # Not every Java can.
                    partial.rename(archive)
    finally:
        _IN_THE_MAKING.discard(archive)
