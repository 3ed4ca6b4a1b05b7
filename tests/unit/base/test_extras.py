from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import odradek
from odradek.base.extras import absent, install_command, not_installed


def test_only_what_is_not_there_is_absent_and_nothing_is_imported() -> None:
    assert absent("json", "no_such_module", "this") == ["no_such_module"]
    assert "this" not in sys.modules


def test_the_command_names_what_each_extra_asks_for_and_nothing_else() -> None:
    words = shlex.split(install_command("metrics", "tls"))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert sorted(word.partition(">=")[0] for word in words[4:]) == ["cryptography", "prometheus-client"]


def test_one_and_several() -> None:
    assert not_installed(["a"], "tls").startswith("a is not installed: ")
    assert not_installed(["a", "b"], "tls").startswith("a, b are not installed: ")


@pytest.mark.waits
def test_a_checkout_that_is_not_installed_is_named_itself(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "odradek").symlink_to(Path(odradek.__file__).parent)
    program = "from odradek.base.extras import install_command; print(install_command('tls'), end='')"
    done = subprocess.run(  # -S: without what is installed here.
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shlex.split(done.stdout)[-1] == f"{tmp_path}[tls]"
