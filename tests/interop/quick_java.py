"""Quick starts of Java in tests: most of the time goes into class loading, so loaded classes are stored with the jars.

This is Java's class data sharing. The first user of an archive creates it, and all others read it; an archive for other
jars, or another Java, is silently ignored.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

# Only the first, quick compiler, and no garbage collection threads. Messages about archives are disabled.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable")

_IN_THE_MAKING: set[Path] = set()


def options(folder: Path, name: str, run: Callable[[Sequence[str]], None]) -> list[str]:
    """Return the options of a Java that starts quickly.

    `run` starts the programs whose classes belong into the archive, with their own options, and ends them cleanly.
    """
    archive = folder / f"{name}-{_java()}.jsa"
    if archive in _IN_THE_MAKING:
        return [*OPTIONS]
    if not archive.exists():
        _make(archive, run)
    return [*OPTIONS, *([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else [])]


@cache
def _java() -> str:
    """Return a name for this Java, since archives of other versions are unusable."""
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
