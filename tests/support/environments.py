"""Virtual environments with Odradek from a wheel, and only the required ones of the packages installed here."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

SECONDS_MAX = 120


class Environment:
    """An environment without pip and without our sources; other packages are links to the installed ones."""

    def __init__(self, folder: Path, wheel: Path, *extras: str) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.folder = folder
        self._packages = next(folder.glob("lib/python*/site-packages"))
        into = ["--python", str(folder / "bin" / "python")]
        alone = ["install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([sys.executable, "-m", "pip", *into, *alone, str(wheel)], check=True)
        (odradek,) = (one for one in distributions(path=[str(self._packages)]) if one.name == "odradek")
        for name in set(_requirements(odradek, extras)):
            self.link(name)

    def link(self, name: str) -> None:
        for part in _parts(distribution(name)):
            path = self._packages / part.name
            if not path.exists():
                path.symlink_to(part)

    def unlink(self, name: str) -> None:
        for part in _parts(distribution(name)):
            (self._packages / part.name).unlink()

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, which finds no other on its PATH."""
        program = self.folder / "bin" / arguments[0]
        bare = {"PATH": str(program.parent), "HOME": str(self.folder), "PYTHONSAFEPATH": "1"}
        return subprocess.run(
            [program, *arguments[1:]],
            cwd=self.folder,
            env=bare | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )


def repacked(name: str, folder: Path) -> None:
    """Build a wheel of an installed package in the folder."""
    found = distribution(name)
    wheel = folder / f"{found.name.replace('-', '_')}-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in found.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                archive.write(str(file.locate()), str(file))


def _requirements(found: Distribution, extras: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names of all direct and indirect requirements."""
    for line in found.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement.name
            yield from _requirements(distribution(requirement.name), tuple(requirement.extras))


def _parts(found: Distribution) -> set[Path]:
    """Return the folders and files of a package in site-packages."""
    names = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
    return {Path(str(found.locate_file(name))) for name in names}
