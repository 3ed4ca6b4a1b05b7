from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import odradek
from odradek.base.extras import absent, install_command, not_installed


def test_absent_returns_missing_modules_without_importing_any() -> None:
    assert absent("json", "no_such_module", "this") == ["no_such_module"]
    assert "this" not in sys.modules


def test_install_command_names_exactly_the_packages_of_the_extras() -> None:
    words = shlex.split(install_command("metrics", "tls"))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert sorted(word.partition(">=")[0] for word in words[4:]) == ["cryptography", "prometheus-client"]


def test_message_names_one_or_several_missing_packages() -> None:
    assert not_installed(["a"], "tls").startswith("a is not installed: ")
    assert not_installed(["a", "b"], "tls").startswith("a, b are not installed: ")


@pytest.mark.waits
def test_install_command_of_an_uninstalled_checkout_names_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "odradek").symlink_to(Path(odradek.__file__).parent)
    program = "from odradek.base.extras import install_command; print(install_command('tls'), end='')"
    done = subprocess.run(  # -S: without the installed packages.
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shlex.split(done.stdout)[-1] == f"{tmp_path}[tls]"
