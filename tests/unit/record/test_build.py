"""The package can be built where there is no compiler; the kernels then run interpreted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[3]
BUILD_SECONDS_MAX = 600


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is needed of the repository; Cython's output stays there for the next build."""
    source = tmp_path_factory.mktemp("build") / "source"
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(REPOSITORY / "src" / "odradek" / "record", source / "src" / "odradek" / "record", ignore=ignored)
    (source / "src" / "odradek" / "__init__.py").write_text('__version__ = "0"\n')
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    return source


@pytest.mark.parametrize(("compiler", "is_compiled"), [("/bin/false", False), ("cc", True)])
def test_kernels_are_left_out_without_a_compiler(
    source: Path, tmp_path: Path, compiler: str, is_compiled: bool
) -> None:
    if is_compiled and shutil.which(compiler) is None:
        pytest.skip("there is no C compiler here")
    quick = tmp_path / "cc"  # Optimising takes most of the time, and says no more.
    quick.write_text(f'#!/bin/sh\nexec {compiler} "$@" -O0\n')
    quick.chmod(0o755)
    out = tmp_path / "out"
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", out, "--build-temp", tmp_path / "temporary"],
        cwd=source,
        env={**os.environ, "CC": str(quick), "ODRADEK_ROOMS": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert bool(list(out.rglob("*.so"))) is is_compiled
